"""What TLS, logins, ACLs and quotas cost, beside a secured Apache Kafka."""
