"""Text to token ids and back: vocabularies, chat templates, tools in prompts, stop strings."""
