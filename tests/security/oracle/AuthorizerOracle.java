/*
 * Asks Apache Kafka's StandardAuthorizer, for tests/security/test_authorizer_oracle.py.
 *
 * Reads lines with tabs from standard input and answers each ASK and ANY with a line:
 *   NEW  allow.everyone.if.no.acl.found  super.users
 *   ACL  type  pattern  name  principal  host  operation  permission
 *   ASK  principal  host  operation  type  name
 *   ANY  principal  host  operation  type
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

public class AuthorizerOracle {
    private static Map<String, String> settings = Map.of();
    private static final Map<Uuid, StandardAcl> acls = new HashMap<>();
    private static StandardAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "NEW" -> {
                    settings = Map.of(
                        "allow.everyone.if.no.acl.found", words[1], "super.users", words[2]);
                    acls.clear();
                    authorizer = null;
                }
                case "ACL" -> acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(words[1]), words[3], PatternType.valueOf(words[2]),
                    words[4], words[5], AclOperation.valueOf(words[6]),
                    AclPermissionType.valueOf(words[7])));
                case "ASK" -> {
                    var pattern = new ResourcePattern(
                        ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL);
                    var action = new Action(
                        AclOperation.valueOf(words[3]), pattern, 1, false, false);
                    output.println(
                        loaded().authorize(client(words[1], words[2]), List.of(action)).get(0));
                }
                case "ANY" -> output.println(loaded().authorizeByResourceType(
                    client(words[1], words[2]), AclOperation.valueOf(words[3]),
                    ResourceType.valueOf(words[4])));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static StandardAuthorizer loaded() throws Exception {
        if (authorizer == null) {
            authorizer = new StandardAuthorizer();
            authorizer.configure(settings);
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
        }
        return authorizer;
    }

    private static AuthorizableRequestContext client(String principal, String host)
            throws Exception {
        String[] parts = principal.split(":", 2);
        var user = new KafkaPrincipal(parts[0], parts[1]);
        var address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            @Override public String listenerName() { return "CLIENTS"; }
            @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
            @Override public KafkaPrincipal principal() { return user; }
            @Override public InetAddress clientAddress() { return address; }
            @Override public int requestType() { return 0; }
            @Override public int requestVersion() { return 0; }
            @Override public String clientId() { return "oracle"; }
            @Override public int correlationId() { return 0; }
        };
    }
}
