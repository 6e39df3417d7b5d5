import { useState } from "react";
import { useSetDiscount } from "../../api/adminHooks";
import { useProjects } from "../../api/hooks";
import { FormDialog } from "../../components/FormDialog";
import { Choice, Text } from "../../components/TextField";
import { problemsOf } from "../../lib/problem";
import { startOf } from "./prices";
import { Start } from "./Start";

export function DiscountForm({ onClose }: { onClose: () => void }) {
  const save = useSetDiscount();
  const projects = useProjects().data ?? [];
  const [chosen, setChosen] = useState("");
  const [percent, setPercent] = useState("");
  const [start, setStart] = useState("");
  const project = chosen || (projects[0]?.key ?? "");
  const { at, rest } = problemsOf(save.error, ["project", "percent", "valid_from_at"]);
  return (
    <FormDialog title="New discount" fault={rest} busy={save.isPending || project === ""} onSubmit={() => save.mutate({ project, percent, valid_from_at: startOf(start) }, { onSuccess: onClose })} onClose={onClose}>
      <Choice label="Project" value={project} onChange={setChosen} options={projects.map((one) => [one.key, one.name])} error={at.project} />
      <Text label="Percent (0 ends one)" value={percent} onChange={setPercent} decimal required placeholder="25" error={at.percent} />
      <Start value={start} onChange={setStart} error={at.valid_from_at} />
    </FormDialog>
  );
}
