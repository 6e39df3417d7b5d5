import { useState } from "react";
import { useSetRate } from "../../api/adminHooks";
import { useAcceleratorTypes, useSession } from "../../api/hooks";
import type { Rate } from "../../api/types";
import { FormDialog } from "../../components/FormDialog";
import { Choice, Text } from "../../components/TextField";
import { typeName } from "../../lib/format";
import { problemsOf } from "../../lib/problem";
import { pricedName, startOf } from "./prices";
import { Start } from "./Start";

const RESOURCES: [Rate["resource"], string][] = [["gpu", "GPU"], ["cpu", "CPU"], ["memory", "GiB of memory"]];
const OTHER = "";

/** A new price, or another one of what has a price. It never begins in the past. */
export function PriceForm({ rate, onClose }: { rate: Rate | null; onClose: () => void }) {
  const save = useSetRate();
  const types = useAcceleratorTypes().data ?? [];
  const clusters = useSession().data?.clusters ?? [];
  const [resource, setResource] = useState<Rate["resource"]>(rate?.resource ?? "gpu");
  const [chosen, setChosen] = useState<string | null>(rate?.accelerator_type ?? null);
  const [other, setOther] = useState("");
  const [cluster, setCluster] = useState(rate?.cluster ?? "");
  const [price, setPrice] = useState("");
  const [start, setStart] = useState("");
  const { at, rest } = problemsOf(save.error, ["resource", "accelerator_type", "cluster", "price_per_hour", "valid_from_at"]);
  const known = [...new Set([...types.map((one) => one.name), ...(rate?.accelerator_type ? [rate.accelerator_type] : [])])];
  const type = chosen ?? known[0] ?? OTHER;
  const submit = () => {
    const named = resource === "gpu" ? type || other.trim() : null;
    save.mutate({ resource, accelerator_type: named, ...(cluster ? { cluster } : {}), price_per_hour: price, valid_from_at: startOf(start) }, { onSuccess: onClose });
  };
  return (
    <FormDialog title={rate ? `Another price of ${pricedName(rate)}` : "New price"} fault={rest} busy={save.isPending} onSubmit={submit} onClose={onClose}>
      <Choice label="An hour of a" value={resource} disabled={rate !== null} onChange={(value) => setResource(value as Rate["resource"])} options={RESOURCES} error={at.resource} />
      {resource === "gpu" && <Choice label="Accelerator type" value={type} disabled={rate !== null} onChange={setChosen} options={[...known.map((name): [string, string] => [name, typeName(name)]), [OTHER, "another type"]]} error={type === OTHER ? undefined : at.accelerator_type} />}
      {resource === "gpu" && type === OTHER && <Text label="Name of the type" value={other} onChange={setOther} required placeholder="h300" error={at.accelerator_type} />}
      {(clusters.length > 1 || cluster) && <Choice label="Cluster" value={cluster} disabled={rate !== null} onChange={setCluster} options={[["", "all that have no price of their own"], ...optionsOf(clusters, cluster)]} error={at.cluster} />}
      <Text label="Price" value={price} onChange={setPrice} decimal required placeholder={rate ? `now ${Number(rate.price_per_hour)}` : "2.50"} error={at.price_per_hour} />
      <Start value={start} onChange={setStart} error={at.valid_from_at} />
    </FormDialog>
  );
}

/** With the one that the price is of, which may have been retired. */
function optionsOf(clusters: { name: string }[], cluster: string): [string, string][] {
  return [...new Set([...clusters.map((one) => one.name), ...(cluster ? [cluster] : [])])].map((name) => [name, name]);
}
