import { FORMAT_USAGE } from './log-format.ts';

/** All options of the block, for the documents and the editor. */
export const globalUsage = `
{
    admin off
    admin [<address>] { origins <host…> }
    metrics <address>|off
    metrics { per_host }
    http_port <port>
    https_port <port>
    email <address>
    acme_ca <url…>
    acme_staging [<url>]
    acme_challenges tls-alpn-01|http-01…
    acme_dns <provider> <argument…> { <options of tls dns…> }
    acme_ca_root <pem file>
    acme_eab {
        key_id <id>
        mac_key <key>
    }
    on_demand_tls {
        ask <url>
        interval <duration>
        burst <n>
    }
    local_certs
    skip_install_trust
    auto_https off|disable_redirects
    storage <directory>
    storage file_system { root <directory> }
    grace_period <duration>
    default_bind <address…>
    workers <n>|auto
    log [<name>] {
        level debug|info|warn|error
        ${FORMAT_USAGE}
        output stderr|stdout
        output file <path> {
            mode <mode>
            roll_size <size>
            roll_keep <count>
            roll_keep_for <duration>
            roll_interval <duration>
            roll_disabled
        }
        include <logger…>
        exclude <logger…>
    }
    trace off
    otlp <url>
    servers [<address>] {
        trusted_proxies static <ranges…>|private_ranges
        client_ip_headers <field…>
        protocols h1|h2…
        max_header_size <size>
        timeouts {
            read_header <duration>
            read_body <duration>
            idle <duration>
        }
        proxy_protocol <ranges…>
        forward_raw_path
        underscores_in_headers
        trusted_proxies_strict
        log_credentials
        max_connections <n>
        max_connections_per_client <n>
    }
    order <directive> first|last
    order <directive> before|after <directive>
    persist_config off
    debug
}
`;
