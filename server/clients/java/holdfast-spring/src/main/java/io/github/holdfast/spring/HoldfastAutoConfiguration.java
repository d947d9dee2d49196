package io.github.holdfast.spring;

import io.github.holdfast.HoldfastClient;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.support.locks.LockRegistry;

/** A client, and a {@link LockRegistry} by it, where {@code holdfast.nodes} is set. For TLS, make a HoldfastClient a bean. */
@AutoConfiguration
@ConditionalOnProperty("holdfast.nodes")
@EnableConfigurationProperties(HoldfastAutoConfiguration.Settings.class)
public class HoldfastAutoConfiguration {
    /**
     * What is set by {@code holdfast.…}.
     *
     * @param nodes each host:port
     * @param username of the client
     * @param password of the client
     * @param database of the locks
     * @param ttl how long locks stay held when this program dies, or no node can be reached
     * @param prefix that the names of the registry's locks begin with
     */
    @ConfigurationProperties("holdfast")
    public record Settings(List<String> nodes, @DefaultValue("") String username, @DefaultValue("") String password,
            @DefaultValue("0") int database, @DefaultValue("10s") Duration ttl, @DefaultValue("spring") String prefix) { }

    /** The client, which ends with the application. */
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    public HoldfastClient holdfastClient(Settings settings) {
        var builder = HoldfastClient.builder(settings.nodes().toArray(String[]::new)).database(settings.database()).ttl(settings.ttl());
        if (!settings.username().isEmpty() || !settings.password().isEmpty()) {
            builder.credentials(settings.username(), settings.password());
        }
        return builder.build();
    }

    /** The registry. */
    @Bean
    @ConditionalOnMissingBean(LockRegistry.class)
    public HoldfastLockRegistry holdfastLockRegistry(HoldfastClient client, Settings settings) {
        return new HoldfastLockRegistry(client, settings.prefix());
    }
}
