package hdfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/spnego"
	krbtypes "github.com/jcmturner/gokrb5/v8/types"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemark/tidemark/blobstore"
)

// States of an RpcSaslProto: 2 state, 3 token, 4 SaslAuth (1 method, 2 mechanism,
// 3 protocol, 4 server ID).
const (
	saslSuccess   = 0
	saslNegotiate = 1
	saslInitiate  = 2
	saslChallenge = 3
	saslResponse  = 4
	saslWrap      = 5
)

type saslMessage struct {
	state uint64
	token []byte
	auths [][]byte
}

func decodeSASL(body []byte) (saslMessage, error) {
	var m saslMessage
	err := eachField(body, func(num protowire.Number, v uint64, data []byte) error {
		switch num {
		case 2:
			m.state = v
		case 3:
			m.token = data
		case 4:
			m.auths = append(m.auths, data)
		}
		return nil
	})
	return m, err
}

// authenticate does the SASL exchange with Kerberos (mechanism GSSAPI, RFC 4752)
// and gives the principal's name. If the namenode asks for it, messages are signed
// or encrypted from here on.
func (c *rpcConn) authenticate(ctx context.Context, cl *rpcClient) (string, error) {
	offer, err := c.saslCall(cl, appendVarint(nil, 2, saslNegotiate))
	if err != nil {
		return "", err
	}
	var kerberosAuth []byte
	for _, auth := range offer.auths {
		eachField(auth, func(num protowire.Number, _ uint64, data []byte) error {
			if num == 1 && string(data) == "KERBEROS" {
				kerberosAuth = auth
			}
			return nil
		})
	}
	if offer.state == saslSuccess {
		return "", fmt.Errorf("%s takes no Kerberos, but hadoop.security.authentication is kerberos: %w", c.addr, blobstore.ErrPermission)
	}
	if kerberosAuth == nil {
		return "", fmt.Errorf("%s offers no Kerberos: %w", c.addr, blobstore.ErrPermission)
	}
	host, _, _ := net.SplitHostPort(c.addr)
	spn := servicePrincipal(cl.cfg.namenodePrincipal, host)
	if spn == "" {
		if spn = offeredPrincipal(kerberosAuth); spn == "" {
			return "", errors.New("dfs.namenode.kerberos.principal is not set")
		}
	}
	krb, ticket, key, err := cl.krb.ticket(ctx, spn)
	if err != nil {
		return "", err
	}
	first, err := spnego.NewKRB5TokenAPREQ(krb, ticket, key, []int{gssapi.ContextFlagInteg, gssapi.ContextFlagConf}, nil)
	if err != nil {
		return "", fmt.Errorf("kerberos: %w", err)
	}
	token, err := first.Marshal()
	if err != nil {
		return "", fmt.Errorf("kerberos: %w", err)
	}
	req := appendVarint(nil, 2, saslInitiate)
	req = appendBytes(req, 3, token)
	req = appendBytes(req, 4, kerberosAuth)
	answer, err := c.saslCall(cl, req)
	if err != nil {
		return "", err
	}
	if answer.state != saslChallenge {
		return "", connectionError("%s: SASL state %d instead of a challenge", c.addr, answer.state)
	}
	layer := &saslLayer{key: key, clientID: cl.clientID}
	// RFC 4752, 3.1: one byte of flags (1 none, 2 signed, 4 encrypted), three of
	// the greatest size; we answer with our choice, signed.
	offered, err := layer.open(answer.token)
	if err != nil {
		return "", connectionError("%s: %w", c.addr, err)
	}
	if len(offered) < 4 {
		return "", connectionError("%s: SASL challenge of %d bytes", c.addr, len(offered))
	}
	choice := []byte{0, 0, 0, 0}
	switch flags := offered[0]; {
	case flags&1 != 0:
		choice[0] = 1
	case flags&2 != 0:
		choice[0], layer.sealing = 2, sealSign
	case flags&4 != 0:
		choice[0], layer.sealing = 4, sealEncrypt
	default:
		return "", fmt.Errorf("%s: no SASL protection in common: %w", c.addr, blobstore.ErrUnsupported)
	}
	if choice[0] != 1 {
		copy(choice[1:], offered[1:4])
	}
	signed, err := layer.sign(choice)
	if err != nil {
		return "", err
	}
	req = appendVarint(nil, 2, saslResponse)
	req = appendBytes(req, 3, signed)
	if answer, err = c.saslCall(cl, req); err != nil {
		return "", err
	}
	if answer.state != saslSuccess {
		return "", connectionError("%s: SASL state %d instead of success", c.addr, answer.state)
	}
	if layer.sealing != sealNone {
		c.sasl = layer
	}
	return krb.Credentials.UserName() + "@" + krb.Credentials.Realm(), nil
}

// offeredPrincipal is the principal that the namenode says it is: protocol and
// server ID of its offer.
func offeredPrincipal(auth []byte) string {
	service, host := "", ""
	eachField(auth, func(num protowire.Number, _ uint64, data []byte) error {
		switch num {
		case 3:
			service = string(data)
		case 4:
			host = string(data)
		}
		return nil
	})
	if service == "" || host == "" {
		return ""
	}
	return service + "/" + host
}

func (c *rpcConn) saslCall(cl *rpcClient, req []byte) (saslMessage, error) {
	if err := c.send(nil, requestHeader(cl.clientID, callSASL, -1), req); err != nil {
		return saslMessage{}, err
	}
	body, err := c.response(callSASL)
	if err != nil {
		return saslMessage{}, err
	}
	return decodeSASL(body)
}

// saslLayer signs or encrypts messages (hadoop.rpc.protection integrity and
// privacy): each packet becomes the token of a SASL message of the state wrap.
type saslLayer struct {
	key      krbtypes.EncryptionKey
	clientID []byte
	sealing  int
	seq      uint64
}

const (
	sealNone = iota
	sealSign
	sealEncrypt
)

func (l *saslLayer) wrap(packet []byte) ([]byte, error) {
	var token []byte
	var err error
	if l.sealing == sealEncrypt {
		token, err = l.encrypt(packet)
	} else {
		token, err = l.sign(packet)
	}
	if err != nil {
		return nil, err
	}
	msg := appendVarint(nil, 2, saslWrap)
	msg = appendBytes(msg, 3, token)
	out := appendDelimited(make([]byte, 4), requestHeader(l.clientID, callSASL, -1))
	out = appendDelimited(out, msg)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

// unwrap gives the packet, without its length, that a wrapped packet holds.
func (l *saslLayer) unwrap(packet []byte) ([]byte, error) {
	r, err := decodeResponse(packet)
	if err != nil {
		return nil, connectionError("%w", err)
	}
	if r.err != nil {
		return nil, r.err
	}
	m, err := decodeSASL(r.body)
	if err != nil {
		return nil, connectionError("%w", err)
	}
	if m.state != saslWrap {
		return nil, connectionError("a message that is not protected (SASL state %d)", m.state)
	}
	plain, err := l.open(m.token)
	if err != nil {
		return nil, connectionError("%w", err)
	}
	if len(plain) < 4 || int64(binary.BigEndian.Uint32(plain)) > int64(len(plain)-4) {
		return nil, connectionError("a protected message of the wrong length")
	}
	return plain[4 : 4+binary.BigEndian.Uint32(plain)], nil
}

// Wrap tokens of RFC 4121, 4.2.6.2: 2 bytes 05 04, flags (1 from the acceptor, 2
// sealed), ff, extra count, right rotation count, 8 bytes sequence number, then
// payload and checksum, or the ciphertext of payload, extra count bytes and header.
const (
	wrapHeader       = 16
	flagFromAcceptor = 1
	flagSealed       = 2
)

func (l *saslLayer) sign(payload []byte) ([]byte, error) {
	t, err := gssapi.NewInitiatorWrapToken(payload, l.key)
	if err != nil {
		return nil, fmt.Errorf("kerberos: %w", err)
	}
	return t.Marshal()
}

func (l *saslLayer) encrypt(payload []byte) ([]byte, error) {
	l.seq++
	head := []byte{5, 4, flagSealed, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint64(head[8:], l.seq)
	etype, err := crypto.GetEtype(l.key.KeyType)
	if err != nil {
		return nil, fmt.Errorf("kerberos: %w", err)
	}
	_, sealed, err := etype.EncryptMessage(l.key.KeyValue, append(append([]byte(nil), payload...), head...), keyusage.GSSAPI_INITIATOR_SEAL)
	if err != nil {
		return nil, fmt.Errorf("kerberos: %w", err)
	}
	return append(head, sealed...), nil
}

// open checks or decrypts a token of the other side.
func (l *saslLayer) open(token []byte) ([]byte, error) {
	if len(token) < wrapHeader || token[0] != 5 || token[1] != 4 || token[2]&flagFromAcceptor == 0 {
		return nil, errors.New("not a wrap token of the server")
	}
	if token[2]&flagSealed == 0 {
		if l.sealing == sealEncrypt {
			return nil, errors.New("a message is not encrypted")
		}
		var t gssapi.WrapToken
		if err := t.Unmarshal(token, true); err != nil {
			return nil, err
		}
		if _, err := t.Verify(l.key, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil {
			return nil, errors.New("a message of the server has a wrong signature")
		}
		return t.Payload, nil
	}
	extra := int(binary.BigEndian.Uint16(token[4:]))
	rotated := int(binary.BigEndian.Uint16(token[6:]))
	body := token[wrapHeader:]
	if len(body) == 0 {
		return nil, errors.New("an empty message")
	}
	rotated %= len(body)
	body = append(append([]byte(nil), body[rotated:]...), body[:rotated]...)
	plain, err := crypto.DecryptMessage(body, l.key, keyusage.GSSAPI_ACCEPTOR_SEAL)
	if err != nil {
		return nil, errors.New("a message of the server cannot be decrypted")
	}
	if len(plain) < wrapHeader+extra {
		return nil, errors.New("a message of the server is too short")
	}
	return plain[:len(plain)-wrapHeader-extra], nil
}
