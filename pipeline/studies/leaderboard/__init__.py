"""The leaderboard: every system that was scored on every benchmark, and the card of one encoder."""
