"""The web page of the admin port, and what it asks for beside the rest of the admin API.

page/     static files; nothing is loaded from outside
history   what was counted, minute by minute ── series, charts
near, tags, servers   what no other endpoint tells
"""
