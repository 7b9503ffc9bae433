// A server of Eclipse Milo that calls itself by a name that nobody knows: Judge PORT.
package judge;

import java.util.Set;
import org.eclipse.milo.opcua.sdk.server.EndpointConfig;
import org.eclipse.milo.opcua.sdk.server.OpcUaServer;
import org.eclipse.milo.opcua.sdk.server.OpcUaServerConfig;
import org.eclipse.milo.opcua.stack.core.security.SecurityPolicy;
import org.eclipse.milo.opcua.stack.core.types.builtin.LocalizedText;
import org.eclipse.milo.opcua.stack.core.types.enumerated.MessageSecurityMode;
import org.eclipse.milo.opcua.stack.transport.server.tcp.OpcTcpServerTransport;
import org.eclipse.milo.opcua.stack.transport.server.tcp.OpcTcpServerTransportConfig;

public final class Judge {
  public static void main(String[] args) throws Exception {
    int port = Integer.parseInt(args[0]);
    EndpointConfig endpoint = EndpointConfig.newBuilder()
        .setBindAddress("127.0.0.1").setBindPort(port).setHostname("milo.invalid").setPath("/milo")
        .setSecurityPolicy(SecurityPolicy.None).setSecurityMode(MessageSecurityMode.None)
        .addTokenPolicies(OpcUaServerConfig.USER_TOKEN_POLICY_ANONYMOUS)
        .build();
    OpcUaServerConfig config = OpcUaServerConfig.builder()
        .setApplicationName(LocalizedText.english("milo judge"))
        .setApplicationUri("urn:judge:milo").setProductUri("urn:judge:milo:product")
        .setEndpoints(Set.of(endpoint)).build();
    OpcUaServer server = new OpcUaServer(config, profile ->
        new OpcTcpServerTransport(OpcTcpServerTransportConfig.newBuilder().build()));
    server.startup().get();
    System.out.println("ready");
    Thread.currentThread().join();
  }
}
