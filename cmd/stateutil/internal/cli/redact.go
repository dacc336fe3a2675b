package cli

import (
	"regexp"
	"strings"
)

// secretKeys are parts of setting names whose values never reach the screen.
var secretKeys = []string{"secret", "password", "passwd", "token", "access-key", "access_key", "account.key", "accountkey", "sas", "credential", "keytab-data", "shared.key", "client.key", "storage_key"}

func isSecretKey(k string) bool {
	k = strings.ToLower(k)
	for _, s := range secretKeys {
		if strings.Contains(k, s) {
			return true
		}
	}
	return false
}

// redact takes credentials out of a message. The stores see to it themselves;
// this is the second net, for the text of a library that we do not control. It
// runs only when there is something to say.
func (g *global) redact(s string) string {
	if g.loaded != nil {
		for k, v := range g.store {
			if len(v) >= 4 && isSecretKey(k) {
				s = strings.ReplaceAll(s, v, "***")
			}
		}
	}
	for _, kv := range g.env.Environ {
		k, v, _ := strings.Cut(kv, "=")
		if len(v) >= 8 && isSecretKey(k) {
			s = strings.ReplaceAll(s, v, "***")
		}
	}
	if strings.Contains(s, "@") && strings.Contains(s, "://") {
		s = regexp.MustCompile(`://[^/@\s"]*:[^/@\s"]*@`).ReplaceAllString(s, "://***@")
	}
	if strings.Contains(s, "=") {
		s = regexp.MustCompile(`(?i)\b(sig|x-amz-signature|x-amz-credential|x-amz-security-token|accountkey|access_token|delegation|secret[_-]?access[_-]?key|password)=[^&\s";]+`).
			ReplaceAllString(s, "$1=***")
	}
	return s
}
