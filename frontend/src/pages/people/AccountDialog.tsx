import { useState } from "react";
import { useChangePerson } from "../../api/adminHooks";
import type { Account } from "../../api/types";
import { FormDialog } from "../../components/FormDialog";
import { Name } from "../../components/Name";
import { Text } from "../../components/TextField";
import { isolated } from "../../lib/isolated";
import { problemsOf } from "../../lib/problem";

const SOURCES: Record<string, string> = {
  administrator: "An administrator set it.",
  same_name: "An administrator confirmed the name of the address.",
  identity_provider: "The identity provider named it.",
};

/** As whom somebody's jobs run. */
export function AccountDialog({ person, onClose }: { person: Account; onClose: () => void }) {
  const change = useChangePerson();
  const [name, setName] = useState(person.unix_account ?? "");
  const { at, rest } = problemsOf(change.error, ["unix_account"]);
  const suggestion = person.unix_account_suggestion;
  return (
    <FormDialog title={`UNIX account of ${isolated(person.name)}`} fault={rest} busy={change.isPending} onSubmit={() => change.mutate({ id: person.id, unix_account: name.trim() }, { onSuccess: onClose })} onClose={onClose}>
      <Text label="UNIX account" value={name} onChange={setName} placeholder="none" error={at.unix_account} />
      {suggestion !== null && name !== suggestion && (
        <p className="sub" style={{ flexBasis: "100%" }}>Their address suggests <Name>{suggestion}</Name>. Is that account theirs? <button type="button" className="btn sm" onClick={() => setName(suggestion)}>Use it</button></p>
      )}
      <p className="sub" style={{ flexBasis: "100%" }}>{SOURCES[person.unix_account_by ?? ""] ?? ""} New jobs run as this account, with its files, home and limits. Jobs that have begun keep theirs. Empty: they can submit no jobs to clusters that run jobs as people.</p>
    </FormDialog>
  );
}
