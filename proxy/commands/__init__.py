"""The commands of `rejoinder`, one a file. `proxy.cli` imports each when it is called for."""
