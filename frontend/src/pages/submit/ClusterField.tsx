import { useSession } from "../../api/hooks";
import { Field, type FieldError } from "./fields";
import type { Draft } from "./useDraft";

/** Where there are several clusters: the one that the job runs on, or how the portal chooses it. */
export function ClusterField({ draft, errors }: { draft: Draft; errors: FieldError[] }) {
  const clusters = useSession().data?.clusters ?? [];
  if (clusters.length < 2) return null;
  const change = (name: string) => {
    draft.set("cluster", name || undefined);
    draft.set("partition", undefined);
  };
  return (
    <Field label="Cluster" path="cluster" errors={errors}>
      {(props) => (
        <select {...props} name="cluster" className="in" value={String(draft.get("cluster") ?? "")} onChange={(event) => change(event.target.value)}>
          <option value="">the earliest end</option>
          <option value="cheapest">the lowest cost</option>
          {clusters.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
        </select>
      )}
    </Field>
  );
}
