"""What is found for a question, exactly or by meaning, and whether it may be served."""
