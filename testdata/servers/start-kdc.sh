#!/bin/bash
# usage: eval "$(start-kdc.sh [PORT])"
#   Kerberos: MIT's KDC with the realm TIDEMARK.TEST, a keytab for the daemons of a test HDFS (nn/localhost,
#   HTTP/localhost) and one for its user (alice). Debian: krb5-kdc krb5-admin-server krb5-user
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
for tool in krb5kdc kdb5_util kadmin.local kinit; do
  command -v "$tool" >/dev/null || die "$tool is not installed (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user)"
done
REALM=TIDEMARK.TEST

run() {
  local d=$1 port=$2
  cat >"$d/krb5.conf" <<END
[libdefaults]
  default_realm = $REALM
  dns_lookup_realm = false
  dns_lookup_kdc = false
  rdns = false
  udp_preference_limit = 1
[realms]
  $REALM = {
    kdc = 127.0.0.1:$port
  }
[domain_realm]
  localhost = $REALM
END
  cat >"$d/kdc.conf" <<END
[kdcdefaults]
  kdc_listen = 127.0.0.1:$port
  kdc_tcp_listen = 127.0.0.1:$port
[realms]
  $REALM = {
    database_name = $d/principal
    key_stash_file = $d/stash
    acl_file = $d/acl
    max_life = 1h
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }
END
  export KRB5_CONFIG=$d/krb5.conf KRB5_KDC_PROFILE=$d/kdc.conf
  {
    kdb5_util create -r "$REALM" -s -P testmasterkey
    kadmin.local -q "addprinc -randkey nn/localhost"
    kadmin.local -q "addprinc -randkey HTTP/localhost"
    kadmin.local -q "addprinc -randkey alice"
    kadmin.local -q "ktadd -k $d/server.keytab nn/localhost HTTP/localhost"
    kadmin.local -q "ktadd -k $d/alice.keytab alice"
  } >"$d/log" 2>&1 || { failed "the Kerberos database" "$d"; return 1; }
  spawn "$d" krb5kdc -n
  wait_for 20 "$d" listening "$port" || failed krb5kdc "$d"
}
start_on kdc "${1:-}" run
put_env KRB5_CONFIG "$RUN/krb5.conf"
put_env TIDEMARK_TEST_KRB5_REALM "$REALM"
put_env TIDEMARK_TEST_KRB5_SERVER_KEYTAB "$RUN/server.keytab"
put_env TIDEMARK_TEST_KRB5_ALICE_KEYTAB "$RUN/alice.keytab"
put_env TIDEMARK_TEST_KDC_PID "$PID"
