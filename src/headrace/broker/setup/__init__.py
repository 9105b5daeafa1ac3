"""Connections before their requests are served: TLS handshakes and logins."""
