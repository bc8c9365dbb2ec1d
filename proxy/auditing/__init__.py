"""How often answers given by meaning are wrong: asked, counted, shown, and acted upon."""
