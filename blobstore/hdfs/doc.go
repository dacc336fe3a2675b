// Package hdfs stores objects in a Hadoop file system. A blank import registers
// two drivers:
//
//	hdfs://host[:8020]/path      native protocol
//	hdfs://nameservice/path      the same, addresses from the Hadoop configuration
//	webhdfs://host[:9870]/path   WebHDFS or HttpFS over HTTP
//	swebhdfs://host[:9871]/path  the same over TLS
//
// Settings are Hadoop's own keys, from core-site.xml and hdfs-site.xml in
// HADOOP_CONF_DIR and, above them, from blobstore.Options.Config; the keys of
// our own are the constants named Key. docs/design/hdfs.md tells what is
// promised, how, and what was measured.
//
// The native driver has two halves. Names (stat, list, rename, delete, mkdir)
// go through a small RPC client of our own, which knows contexts, deadlines and
// retries, and can rename without overwriting. Bytes go through
// github.com/colinmarc/hdfs, whose defects session.go works around. Both
// drivers share everything above that: see store.go.
package hdfs
