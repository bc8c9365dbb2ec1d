"""Why a request gets the answer that it gets: the decisions of the request path, shown."""
