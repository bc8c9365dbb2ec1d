"""Answers of a given form: grammars compiled beside the steps, and the tokens they leave."""
