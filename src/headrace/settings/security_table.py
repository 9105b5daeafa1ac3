"""The broker settings of logins, encryption and permissions."""

from headrace.settings.setting import (
    Check,
    Setting,
    Type,
    Value,
    at_least,
    one_of,
    some_of,
)
from headrace.settings.topic_table import DAY_MS


def _row(name: str, kind: Type, default: Value, check: Check | None, doc: str) -> Setting:
    return Setting(name, kind, default, doc, check)


def _per_listener(name: str, kind: Type, doc: str) -> Setting:
    """A setting that a running broker alters for single listeners."""
    return Setting(name, kind, None, doc, live=True)


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)

# fmt: off
SECURITY_ROWS: tuple[Setting, ...] = (
    _row("authorizer.class.name", Type.STRING, "", one_of("", *AUTHORIZERS),
         "Enables ACLs. Headrace's authorizer decides as the class named here; other classes "
         "cannot be loaded."),
    _row("super.users", Type.STRING, "", None,
         "Principals that may do everything: User:name, separated by semicolons."),
    _row("allow.everyone.if.no.acl.found", Type.BOOLEAN, False, None,
         "Allow all operations on resources without an ACL."),
    _row("delegation.token.secret.key", Type.PASSWORD, None, None,
         "Enables delegation tokens: the key from which their HMACs are computed. All brokers "
         "of a cluster need the same one, and another one makes all tokens invalid."),
    _row("delegation.token.max.lifetime.ms", Type.LONG, 7 * DAY_MS, at_least(1),
         "How long a delegation token can be renewed."),
    _row("delegation.token.expiry.time.ms", Type.LONG, DAY_MS, at_least(1),
         "How long a delegation token is valid without being renewed."),
    _row("delegation.token.expiry.check.interval.ms", Type.LONG, 3_600_000, at_least(1),
         "Time between two deletions of expired delegation tokens. They cannot be used before "
         "that either."),
    _row("headrace.audit.file", Type.STRING, "", None,
         "File of the audit log: one JSON object a line for each login, denied operation and "
         "change of users, ACLs, quotas or tokens. Without it these events go to the broker's log, "
         "except logins that succeed."),
    _row("headrace.audit.allowed", Type.BOOLEAN, False, None,
         "Audit allowed operations too. This costs time at each request."),
    _row("connections.max.reauth.ms", Type.LONG, 0, at_least(0),
         "Time after which a client must log in again; 0 is never."),
    _row("connection.failed.authentication.delay.ms", Type.INT, 100, at_least(0),
         "How long the response to a failed login is delayed."),
    Setting("sasl.enabled.mechanisms", Type.LIST, ("SCRAM-SHA-256", "SCRAM-SHA-512"),
            "The SASL mechanisms that clients may use.", some_of(*MECHANISMS),
            kafka_default="GSSAPI"),
    Setting("sasl.mechanism.inter.broker.protocol", Type.STRING, "SCRAM-SHA-512",
            "The SASL mechanism between brokers, if their listener has SASL.", one_of(*MECHANISMS),
            kafka_default="GSSAPI"),
    _row("sasl.jaas.config", Type.PASSWORD, None, None,
         "The name and password with which this broker logs in to others, in Kafka's JAAS form: "
         '`org.apache.kafka.common.security.scram.ScramLoginModule required username="..." '
         'password="...";`. It defines no users of clients. For GSSAPI it names the keytab: '
         '`com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true '
         'keyTab="..." principal="kafka/HOST@REALM";`.'),
    _row("headrace.sasl.plain.without.tls", Type.BOOLEAN, False, None,
         "Allow PLAIN on listeners without TLS, where passwords can be intercepted."),
    _row("headrace.sasl.close.deleted.users", Type.BOOLEAN, False, None,
         "Close the connections of users and delegation tokens when these are deleted. Otherwise "
         "they stay until the client disconnects or has to log in again, as in Kafka."),
    _row("sasl.server.max.receive.size", Type.INT, 512 * 1024, at_least(1),
         "The largest message taken from a client that has not logged in."),
    _row("sasl.kerberos.service.name", Type.STRING, None, None,
         "First part of the brokers' principals, SERVICE/HOST@REALM, for GSSAPI between brokers. "
         "Default: serviceName in sasl.jaas.config, or the first part of the principal there."),
    _row("sasl.kerberos.principal.to.local.rules", Type.LIST, ("DEFAULT",), None,
         "How a Kerberos principal becomes a user's name: rules of the form "
         "RULE:[n:format](pattern)s/from/to/g/L or DEFAULT, separated by commas. The first that "
         "applies decides."),
    _row("sasl.oauthbearer.jwks.endpoint.url", Type.STRING, None, None,
         "The issuer's key set (JWKS), which checks the signatures of tokens: https://..., "
         "file:///..., or http://... in a network where it cannot be tampered with."),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, 3_600_000, at_least(1),
         "Interval at which the key set is read. A token with an unknown key causes another read, "
         "at most every 10 s."),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, 100, at_least(0),
         "First pause after a failed read of the key set; it doubles with each failure."),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type.LONG, 10_000, at_least(0),
         "Longest pause after a failed read of the key set."),
    _row("sasl.oauthbearer.token.endpoint.url", Type.STRING, None, None,
         "Where this broker gets the token for its login to other brokers: by the grant "
         "client_credentials with the clientId and clientSecret of sasl.jaas.config, or "
         "file:///... for a file with a token."),
    _row("sasl.oauthbearer.expected.audience", Type.LIST, (), None,
         "Audiences of which a token must name one; required for OAUTHBEARER."),
    _row("sasl.oauthbearer.expected.issuer", Type.STRING, None, None,
         "The issuer that a token must name; required for OAUTHBEARER."),
    _row("sasl.oauthbearer.scope", Type.STRING, None, None,
         "The scope that this broker's own token is asked for."),
    _row("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope", None,
         "The claim of a token that holds its scope: a text or a list of texts."),
    _row("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub", None,
         "The claim of a token that holds the user's name."),
    _row("sasl.oauthbearer.clock.skew.seconds", Type.INT, 30, at_least(0),
         "How far the issuer's clock may be off."),
    _row("headrace.oauthbearer.test.unsigned.tokens", Type.BOOLEAN, False, None,
         "For tests only: accept unsigned tokens (alg=none), with which a client can be any user."),
    _row("headrace.sasl.oauthbearer.without.tls", Type.BOOLEAN, False, None,
         "Allow OAUTHBEARER on listeners without TLS, where tokens can be intercepted."),
    _per_listener("ssl.keystore.location", Type.STRING,
                  "File with the server's private key and certificates."),
    Setting("ssl.keystore.type", Type.STRING, "PEM",
            "Form of the key file; Headrace reads PEM and PKCS12.", one_of("PEM", "JKS", "PKCS12"),
            live=True, kafka_default="JKS"),
    _per_listener("ssl.keystore.password", Type.PASSWORD, "Password of the key file."),
    _per_listener("ssl.keystore.key", Type.PASSWORD,
                  "The server's private key itself, as PEM text."),
    _per_listener("ssl.keystore.certificate.chain", Type.PASSWORD,
                  "The server's certificates themselves, as PEM text."),
    _per_listener("ssl.key.password", Type.PASSWORD, "Password of the private key."),
    _per_listener("ssl.truststore.location", Type.STRING,
                  "File with the authorities whose certificates are trusted."),
    Setting("ssl.truststore.type", Type.STRING, "PEM",
            "Form of that file; Headrace reads PEM and PKCS12.", one_of("PEM", "JKS", "PKCS12"),
            live=True, kafka_default="JKS"),
    _per_listener("ssl.truststore.password", Type.PASSWORD, "Password of that file."),
    _per_listener("ssl.truststore.certificates", Type.PASSWORD,
                  "Those authorities themselves, as PEM text."),
    _row("ssl.client.auth", Type.STRING, "none", one_of("none", "requested", "required"),
         "Whether clients must have a certificate."),
    _row("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"),
         some_of("TLSv1.2", "TLSv1.3"), "Enabled versions of TLS."),
    _row("ssl.protocol", Type.STRING, "TLSv1.3", one_of("TLSv1.2", "TLSv1.3", "TLS"),
         "The version of TLS that is preferred."),
    _row("ssl.cipher.suites", Type.LIST, (), None, "Cipher suites allowed; empty: the default."),
    _row("ssl.endpoint.identification.algorithm", Type.STRING, "https", None,
         "Check host names between brokers; empty: do not."),
    _row("ssl.principal.mapping.rules", Type.STRING, "DEFAULT", None,
         "How a certificate's name becomes a user's name."),
    _row("ssl.allow.dn.changes", Type.BOOLEAN, False, None,
         "Allow another name in a renewed certificate."),
    _row("zookeeper.ssl.client.enable", Type.BOOLEAN, False, None,
         "TLS to ZooKeeper, on its secureClientPort."),
    _row("zookeeper.clientCnxnSocket", Type.STRING, None, None,
         "Kafka needs org.apache.zookeeper.ClientCnxnSocketNetty here for TLS to ZooKeeper; "
         "Headrace accepts it and does not need it."),
    _row("zookeeper.ssl.keystore.location", Type.STRING, None, None,
         "File with the private key and certificates of this broker for "
         "ZooKeeper."),
    _row("zookeeper.ssl.keystore.type", Type.STRING, None, one_of("PEM", "JKS", "PKCS12"),
         "Form of that file; Headrace reads PEM and PKCS12. By default by the suffix: .pem, "
         ".p12 or .pfx."),
    _row("zookeeper.ssl.keystore.password", Type.PASSWORD, None, None,
         "Password of that file, or of an encrypted key in a PEM file."),
    _row("zookeeper.ssl.truststore.location", Type.STRING, None, None,
         "File with the authorities that may have issued ZooKeeper's certificates; without it, "
         "those of the system."),
    _row("zookeeper.ssl.truststore.type", Type.STRING, None, one_of("PEM", "JKS", "PKCS12"),
         "Form of that file, as for the key file."),
    _row("zookeeper.ssl.truststore.password", Type.PASSWORD, None, None, "Password of that file."),
    Setting("zookeeper.ssl.protocol", Type.STRING, "TLSv1.3",
            "The version of TLS that is preferred.", one_of("TLSv1.2", "TLSv1.3"),
            kafka_default="TLSv1.2"),
    Setting("zookeeper.ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"),
            "Enabled versions of TLS.", some_of("TLSv1.2", "TLSv1.3")),
    _row("zookeeper.ssl.cipher.suites", Type.LIST, (), None,
         "Cipher suites allowed; empty: the default."),
    _row("zookeeper.ssl.endpoint.identification.algorithm", Type.STRING, "HTTPS", None,
         "Check that ZooKeeper's certificate names its host; empty: do not."),
    _row("zookeeper.ssl.crl.enable", Type.BOOLEAN, False, None,
         "Check lists of revoked certificates."),
    _row("zookeeper.ssl.ocsp.enable", Type.BOOLEAN, False, None,
         "Ask the authority whether a certificate is revoked."),
    _row("ssl.allow.san.changes", Type.BOOLEAN, False, None,
         "Allow other host names in a renewed certificate."),
)
# fmt: on

DYNAMIC_PER_LISTENER = frozenset(row.name for row in SECURITY_ROWS if row.live)
"""What a running broker alters for one listener, under the name listener.name.LISTENER.SETTING."""
