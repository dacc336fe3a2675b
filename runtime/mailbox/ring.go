package mailbox

// ring is a queue of mails in a circular buffer whose size is a power of two.
type ring struct {
	buf  []Mail
	head int
	n    int
}

func (r *ring) len() int       { return r.n }
func (r *ring) at(i int) *Mail { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring) grow() {
	if r.n < len(r.buf) {
		return
	}
	buf := make([]Mail, max(8, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}

func (r *ring) pushBack(m Mail) {
	r.grow()
	r.n++
	*r.at(r.n - 1) = m
}

func (r *ring) pushFront(m Mail) {
	r.grow()
	r.head = (r.head - 1) & (len(r.buf) - 1)
	r.n++
	*r.at(0) = m
}

// remove takes out the i-th mail; those in front of it move up, which are few.
func (r *ring) remove(i int) Mail {
	m := *r.at(i)
	for ; i > 0; i-- {
		*r.at(i) = *r.at(i - 1)
	}
	*r.at(0) = Mail{}
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return m
}
