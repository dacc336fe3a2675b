package cli

// The schemas of the JSON documents. A number rises only if a member changes its
// meaning or goes; new members do not count.
const (
	schemaLs       = "stateutil.ls/1"
	schemaInspect  = "stateutil.inspect/1"
	schemaFiles    = "stateutil.files/1"
	schemaDu       = "stateutil.du/1"
	schemaLatest   = "stateutil.latest/1"
	schemaVerify   = "stateutil.verify/1"
	schemaCat      = "stateutil.cat/1"
	schemaDump     = "stateutil.dump/1"
	schemaStates   = "stateutil.states/1"
	schemaCompat   = "stateutil.compat/1"
	schemaDiff     = "stateutil.diff/1"
	schemaStats    = "stateutil.stats/1"
	schemaGet      = "stateutil.get/1"
	schemaTimers   = "stateutil.timers/1"
	schemaChannels = "stateutil.channels/1"
	schemaSources  = "stateutil.sources/1"
	schemaCreate   = "stateutil.create/1"
	schemaCopy     = "stateutil.copy/1"
	schemaConvert  = "stateutil.convert/1"
	schemaQuery    = "stateutil.query/1"
)
