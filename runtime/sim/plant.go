package sim

// bug is a mistake that a run makes on purpose, so that a test can show that runs
// find it.
type bug uint8

const (
	noBug            bug = iota
	bugEarlyConfirm      // a checkpoint is confirmed before its metadata object is there
	bugDeletesShared     // a subsumed checkpoint's shared files are deleted, whoever has them
	bugLateAck           // the files of a late acknowledgement are not deleted
	bugNotBlocking       // an input that has its barrier is not blocked
	bugLostSplit         // a failed reader's splits are not given back
	bugNoFence           // the store takes a checkpoint of a coordinator that was replaced
	bugUnfencedStop      // the savepoint to stop with is not noted in the store
	bugOpenGateway       // events of the source's coordinator are not held back
	bugIDReused          // reserved checkpoint IDs are not stored
	bugLostInFlight      // channel state is not restored
	bugForgetsKeys       // a rescaled counter takes the state of one old subtask only
	bugCommitsEarly      // the sink commits when its snapshot is acknowledged
	bugDropsPrepared     // the sink does not commit what a restored state has prepared
	bugStaleBase         // an incremental snapshot builds on one that was not confirmed
	bugForgetsClaims     // a restart does not know which files of a snapshot were claimed
	bugs
)

var bugNames = [...]string{"none", "confirmed before metadata", "shared file deleted with a subsumed checkpoint", "late acknowledgement not discarded", "input not blocked",
	"split lost with its reader", "store without fence", "stop not noted in the store", "gateway not closed", "IDs not reserved", "channel state lost",
	"state of one old subtask only", "commit at acknowledgement", "prepared transactions dropped at a restore", "base not confirmed",
	"claimed files forgotten"}

func (b bug) String() string { return bugNames[b] }
