"""What the proxy tells of itself: times, money, metrics, traces, the access log."""
