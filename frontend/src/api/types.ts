import type { components } from "./schema";

/** Names for what the generated schema describes; nothing is described here a second time. */
type S = components["schemas"];

export type Session = S["Session"];
export type OpenInvitation = S["OpenInvitation"];
export type Job = S["Job"];
export type ExpectedStart = S["ExpectedStart"];
export type JobDetail = S["JobDetail"];
export type CoarseState = Job["state"];
export type Run = S["Run"];
export type Checkpoint = S["Checkpoint"];
export type Artifacts = S["ArtifactPage"];
export type BuildLog = S["BuildLog"];
export type JobArray = S["JobArray"];
export type JobArrayDetail = S["JobArrayDetail"];
export type JobTimeline = S["JobTimeline"];
export type Metrics = S["Metrics"];
export type Resources = S["Resources"];
export type JobCost = S["Cost"];
export type Estimate = S["Estimate"];
export type JobPreview = S["Preview"];
export type PreviewForecast = S["PreviewForecast"];
export type Forecast = S["Forecast"];
export type Explanation = S["Explanation"];
export type LogChunk = S["Log"];
export type ClusterTimeline = S["Timeline"];
export type Hold = S["HoldSpan"];
export type HoldKind = Hold["kind"];
export type History = S["History"];
export type CurvePoint = S["CurvePoint"];
export type ModelType = S["ModelType"];
export type AcceleratorType = S["AcceleratorType"];
export type ClusterNode = S["Node"];
export type NodeDrain = S["Drain"];
export type DrainedJob = S["DrainedJob"];
export type DrainPreview = S["DrainPreview"];
export type NodeWindow = S["Window"];
export type Partition = S["Partition"];
export type Qos = S["Qos"];
export type Project = S["Project"];
export type ProjectDetail = S["ProjectDetail"];
export type Role = Project["role"];
export type Member = S["Member"];
export type Invitation = S["Invitation"];
export type NewInvitation = S["NewInvitation"];
export type ServiceAccount = S["ServiceAccount"];
export type Secret = S["Secret"];
export type Storage = S["Storage"];
export type Account = S["Account"];
export type AuditEntry = S["AuditEntry"];
export type Rate = S["Rate"];
export type Discount = S["Discount"];
export type PolicyInfo = Omit<S["PolicyKind"], "schema"> & { schema: JsonSchema };
export type PolicyPreview = S["PolicyPreview"];
export type PolicyInForce = S["Policy"];
export type PolicyChange = S["PolicyChange"];
export type Factor = S["Factor"];
export type Share = S["Share"];
export type Shares = S["SharePage"];
export type Priorities = S["PriorityPage"];
export type ShareHistory = S["ShareHistory"];
export type ShareCourse = S["ShareCourse"];
export type Fairness = S["Fairness"];
export type FairnessStanding = S["ProjectStanding"];
export type SlowedJob = S["SlowedJob"];
export type FairnessHistory = S["FairnessHistory"];
export type FairnessSeries = S["FairnessSeries"];
export type FairnessPoint = S["FairnessPoint"];
export type EndedSlowdowns = S["EndedPage"];
export type JobPriority = S["JobPriority"];
export type Usage = S["UsagePage"];
export type Limit = S["Quota"];
export type Limits = S["BindingQuotas"];
export type Guarantee = S["Guarantee"];
export type UsageRow = S["UsageRow"];
export type UsageGroup = "project" | "user" | "job" | "day" | "month" | "type";
export type IdleRule = S["IdleRule"];
export type BrowserSession = S["BrowserSession"];
export type BulkAnswer = S["BulkAnswer"];
export type SavedView = S["View"];
export type JobColumn = SavedView["columns"][number];
export type Template = S["Template"];
export type TemplateSummary = S["TemplateSummary"];
export type ApiToken = S["Token"];
export type NewToken = S["NewToken"];
export type Destination = S["NoticeDestination"];
export type NewDestination = S["NewNoticeDestination"];
export type NoticeDelivery = S["NoticeDelivery"];
export type NoticeKind = Destination["events"][number];
export type ProblemDocument = Partial<S["Problem"]> & { status: number };

/** Streams leave out what is null, since a merge patch could not say it. */
export type LiveCluster = S["ClusterState"];
export type LiveProject = S["ProjectState"];
export type LiveJob = S["LiveJob"];
export type Event = S["LiveEvent"];
export type NodeState = S["LiveNode"];
export type AcceleratorState = S["Cell"];

export interface Page<T> {
  next: string | null;
  previous: string | null;
  results: T[];
}

/** The part of JSON Schema that policies describe their parameters with. */
export interface JsonSchema {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: (string | number)[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  anyOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
}

export type Simulation = S["Simulation"];
export type SimulationTrial = S["SimulationTrial"];
export type SimulationTable = S["SimulationTable"];
export type SimulationRow = S["SimulationRow"];
export type SimulationColumn = S["SimulationColumn"];
export type SimulationCurve = S["SimulationCurve"];
export type SimulationCharts = S["SimulationCharts"];
export type SimulationGantt = S["SimulationGantt"];
export type SimulationComparison = S["SimulationComparison"];
export type SimulationFidelity = S["SimulationFidelity"];
export type SimulationTrace = S["SimulationTrace"];
export type Rollout = S["Rollout"];
export type RolloutDetail = S["RolloutDetail"];
export type RolloutIndicators = S["RolloutIndicators"];
export type RolloutLimits = S["RolloutLimits"];
export type RolloutProposal = S["RolloutProposal"];
export type ShadowDecision = S["ShadowDecision"];
export type ShadowJob = S["ShadowJob"];
export type GuardCheck = S["GuardCheck"];
type Spec = S["Spec"];
/** What is left out has a default. */
export type SimulationWish = Pick<Spec, "workload" | "policies"> & Partial<Spec>;
