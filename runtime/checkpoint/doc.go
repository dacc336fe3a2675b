// Package checkpoint is the coordinator's side of Flink's checkpoints: when to
// take one, what to ask of whom in which order, what to do with what comes back,
// and which of the completed ones to keep and to restore.
//
// It has two halves. Core is a state machine without clock, goroutine or I/O:
//
//	actions = core.Handle(now, event, actions[:0])
//
// Every timer is an Action (start it) and an Event (it fired); every call of a
// store, a task or an operator coordinator is an Action and its answer an Event.
// So each interleaving can be played from a text file (testdata/*.story) or a
// seed (package runtime/sim). Coordinator is the thin shell around it: one
// goroutine, the real clock, the real stores.
//
//	step                                     Core                   Flink
//	1 trigger, or wait for a better moment   request.go             CheckpointRequestDecider
//	2 ID, PendingCheckpoint, timeout         core_trigger.go        CheckpointCoordinator, PendingCheckpoint
//	3 close gateways, ask the coordinators   gateway.go             OperatorCoordinatorHolder, SubtaskGatewayImpl
//	4 master hooks                           core_trigger.go        MasterHooks
//	5 trigger the tasks                      plan.go                DefaultCheckpointPlanCalculator
//	9 acknowledgements, complete, subsume    core_ack.go            completePendingCheckpoint, DefaultCompletedCheckpointStore
//	10 fail, abort, restore                  core_abort.go, failure.go, assign.go   CheckpointFailureManager, StateAssignmentOperation
//
// Times are milliseconds since 1970 unless a name says otherwise.
package checkpoint
