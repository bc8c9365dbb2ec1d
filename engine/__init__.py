"""The bundled engine: token ids in, token ids out, in a process of its own."""
