"""What a client asks brokers: one file for each kind of request.

Each class is a `client.channels.Requester`.
"""
