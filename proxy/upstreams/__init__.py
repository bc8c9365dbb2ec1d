"""Where misses go: remote servers and the bundled engine, behind one border."""
