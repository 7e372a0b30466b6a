// The parts of the contract's JSON that the page reads. Fields at their defaults are left out, and
// 64-bit integers are strings.

export type Permission = "read" | "invoke" | "define" | "approve" | "operate" | "administer";

export interface Caller {
  principal?: string;
  roles?: string[];
  permissions?: Permission[];
  /** The permissions for the installation. */
  systemPermissions?: Permission[];
  open?: boolean;
}

export interface CallError {
  code?: string;
  message?: string;
}

export interface RunOutcome {
  state?: string;
  resultJson?: string;
  error?: CallError;
  stopReason?: string;
}

export interface Run {
  runId: string;
  state?: string;
  subject?: string;
  conversationId?: string;
  createTime?: string;
  finishTime?: string;
  outcome?: RunOutcome;
  lastSequence?: string;
  waitReason?: string;
}

export interface CallResult {
  index?: number;
  effectId?: string;
  toolId?: string;
  status?: string;
  outputJson?: string;
  longOutput?: { head?: string; totalBytes?: string };
  error?: CallError;
  duration?: string;
  replayed?: boolean;
  childRunId?: string;
}

export interface Call {
  effectId: string;
  toolId?: string;
  state?: string;
  argumentsJson?: string;
  runId?: string;
  attempt?: number;
  dispatchTime?: string;
  result?: CallResult;
  resolution?: { decision?: string; reason?: string };
}

export interface Wait {
  waitId: string;
  nodeId?: string;
  kind?: string;
  name?: string;
  due?: string;
  schemaJson?: string;
  choices?: { value: string; label?: string }[];
  assignees?: string[];
  contextJson?: string;
}

export interface Question {
  runId: string;
  parentPath?: string[];
  subject?: string;
  wait: Wait;
}

export interface Approval {
  approvalId: string;
  state?: string;
  runId?: string;
  toolId?: string;
  argumentsJson?: string;
  argumentsDigest?: string;
  reasons?: { ruleId?: string; text?: string }[];
  role?: string;
  principal?: string;
  needed?: number;
  consents?: { approver?: string }[];
  reasonRequired?: boolean;
  createTime?: string;
  expireTime?: string;
}

export interface RunEvent {
  sequence: string;
  runId: string;
  parentPath?: string[];
  time?: string;
  runStarted?: { subject?: string; conversationId?: string; inputJson?: string; inputIsModelText?: boolean };
  iterationStarted?: { iteration?: number; limit?: number };
  modelRequested?: { model?: string };
  thinking?: { text?: string };
  text?: { text?: string };
  modelAnswered?: { model?: string; inputTokens?: number; outputTokens?: number; duration?: string };
  diagnosed?: { diagnostic?: { severity?: string; message?: string; hint?: string } };
  callDispatched?: { effectId?: string; toolId?: string; argumentsJson?: string; index?: number; nodeId?: string };
  outputChunk?: {
    effectId?: string;
    stream?: string;
    text?: string;
    nodeId?: string;
    interfaceKey?: string;
    truncated?: boolean;
    jsonLines?: boolean;
  };
  outputReset?: { effectId?: string; nodeId?: string; interfaceKey?: string };
  progressReported?: { effectId?: string; nodeId?: string; fraction?: number; message?: string };
  callSettled?: { result?: CallResult };
  nodeStarted?: { nodeId?: string; nodeType?: string };
  nodeFinished?: {
    nodeId?: string;
    nodeType?: string;
    state?: string;
    outputsJson?: string;
    error?: CallError;
    duration?: string;
  };
  nodeRetrying?: { nodeId?: string; attempt?: number; error?: CallError };
  nodeWaiting?: { wait?: Wait };
  nodeWoken?: { waitId?: string; nodeId?: string; cause?: string; payloadJson?: string; answeredBy?: string };
  approvalRequested?: { approvalId?: string; effectId?: string; toolId?: string; ruleIds?: string[] };
  approvalEnded?: { approvalId?: string; effectId?: string; approved?: boolean; approvers?: string[]; reason?: string };
  callInDoubt?: { effectId?: string; toolId?: string; attempt?: number; error?: CallError };
  callDecided?: { effectId?: string; attempt?: number; status?: string; reason?: string };
  hookApplied?: { hook?: string; point?: string; action?: string; pointers?: string[]; code?: string; reason?: string };
  observation?: { text?: string };
  steeringAccepted?: { message?: string };
  steered?: { message?: string };
  budgetsEdited?: object;
  eventPublished?: { event?: SceneEvent; deliveredTo?: string[] };
  eventDropped?: { instanceId?: string; detail?: string };
  instanceSlept?: { instanceId?: string; wakeTime?: string; wakeOn?: string[] };
  instanceWoke?: { instanceId?: string; cause?: string };
  eventsTaken?: { instanceId?: string; eventIds?: string[] };
  eventsHandled?: { instanceId?: string; error?: string };
  sceneWorkflowStarted?: { moment?: string; workflowId?: string };
  sceneWorkflowEnded?: { error?: string };
  conversationCompacted?: { turns?: number; summary?: string };
  sceneEnding?: { reason?: string };
  runFinished?: { outcome?: RunOutcome };
  cancelRequested?: { reason?: string };
  runPaused?: { reason?: string };
  runResumed?: object;
  runQueued?: object;
  runDequeued?: object;
}

export interface SceneEvent {
  type?: string;
  payloadJson?: string;
  source?: { id?: string };
}

export interface WatchRecord {
  event?: RunEvent;
  gap?: { firstSequence: string; lastSequence: string };
  drain?: object;
  terminal?: { run?: Run };
}

export interface Conversation {
  conversationId: string;
  createTime?: string;
  activeRunId?: string;
  queuedRunIds?: string[];
}

export interface WorkspaceFile {
  path: string;
  sizeBytes?: string;
  sha256?: string;
  mediaType?: string;
  updateTime?: string;
}

export interface Message {
  role?: string;
  text?: string;
  runId?: string;
  calls?: { name?: string; argumentsJson?: string }[];
}

export interface Profile {
  profileId: string;
  name?: string;
  description?: string;
  profileJson?: string;
  etag?: string;
}

export interface Workflow {
  workflowId: string;
  name?: string;
  description?: string;
  definitionJson?: string;
}

export interface Tool {
  toolId: string;
  displayName?: string;
  description?: string;
  parametersJson?: string;
}

/** A finding about files. */
export interface Finding {
  severity?: string;
  path?: string;
  message?: string;
}

/** A hook of a plugin, as it runs for the caller's tenant. */
export interface PluginHook {
  /** `<plugin>/<id>`. */
  hook?: string;
  point?: string;
  condition?: string;
  onFailure?: string;
  failures?: number;
  suspended?: boolean;
  lastFailure?: string;
  inactiveReason?: string;
}

export interface Plugin {
  directory?: string;
  name?: string;
  displayName?: string;
  version?: string;
  description?: string;
  loaded?: boolean;
  toolIds?: string[];
  diagnostics?: Finding[];
  packageDigest?: string;
  earlierDigests?: string[];
  permissions?: string[];
  hasChanges?: boolean;
  disabled?: boolean;
  missingOptions?: string[];
  disabledToolIds?: string[];
}

export interface PluginPlan {
  planDigest?: string;
  plugin?: string;
  text?: string;
  violations?: Finding[];
  expireTime?: string;
}

export interface PluginOption {
  key: string;
  type?: string;
  displayName?: string;
  description?: string;
  declarationJson?: string;
  valueJson?: string;
  isSet?: boolean;
  isMissing?: boolean;
}

export interface PluginOptions {
  options?: PluginOption[];
  etag?: string;
}
