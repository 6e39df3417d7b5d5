import { useOfferedPartitions } from "../../api/offerHooks";
import { count } from "../../lib/format";
import { Field, type FieldError } from "./fields";
import type { Draft } from "./useDraft";

/** Where the cluster has partitions: which one the job runs in. */
export function PartitionField({ draft, errors }: { draft: Draft; errors: FieldError[] }) {
  const partitions = useOfferedPartitions(draft.get("cluster"));
  if (partitions.length === 0) return null;
  const standard = partitions.find((one) => one.is_default);
  const chosen = partitions.find((one) => one.name === draft.get("partition")) ?? standard;
  const most = chosen && chosen.max_gpus !== null ? `, at most ${count(chosen.max_gpus, "GPU")} a job` : "";
  return (
    <Field label="Partition" path="partition" errors={errors} hint={chosen && `${count(chosen.gpus, "GPU")}${most}`}>
      {(props) => (
        <select {...props} name="partition" className="in" value={String(draft.get("partition") ?? "")} onChange={(event) => draft.set("partition", event.target.value || undefined)}>
          <option value="">{standard ? `${standard.name}, the default` : "nodes of none"}</option>
          {partitions.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
        </select>
      )}
    </Field>
  );
}
