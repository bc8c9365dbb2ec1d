"""The small words that make a question."""

from index.guards.wordset import wordset

WH = wordset("what which who whom whose where when why how")
BE = wordset("is are am was were")
DO = wordset("do does did")
MODALS = wordset("can could should would will may might must")
ASKING = BE | DO | MODALS | wordset("has have")
"""With which a question for yes or no begins."""
