import { TextField, type FieldError } from "./fields";
import type { Draft } from "./useDraft";

/** Of the group as a whole, or of what has no field here. */
const UNPLACED = ["code", "code.bundle"];

interface Props {
  draft: Draft;
  errors: FieldError[];
}

/** Where the program comes from: a directory that the nodes read, or a commit of a repository. */
export function CodeFields({ draft, errors }: Props) {
  const at = draft.get("code.path") && !draft.get("code.git") ? "code.path" : "code.git";
  const placed = errors.map((error) => (UNPLACED.includes(error.field) ? { ...error, field: at } : error));
  return (
    <>
      <div className="g2">
        <TextField draft={draft} errors={placed} label="Code directory" path="code.path" placeholder="on shared storage" hint="The job starts in it." />
        <TextField draft={draft} errors={placed} label="Git repository" path="code.git" placeholder="https://example.org/team/code.git" hint="Instead of a directory: one commit, fetched once." />
      </div>
      <div className="g3">
        <TextField draft={draft} errors={placed} label="Branch, tag or commit" path="code.ref" placeholder="main" hint="The commit it names on submission stays the job's." />
        <TextField draft={draft} errors={placed} label="Directory in it" path="code.subdir" placeholder="its root" />
        <TextField draft={draft} errors={placed} label="Secret with its token" path="code.token_secret" placeholder="GIT_TOKEN" hint="For a private one: a secret of the project." />
      </div>
    </>
  );
}
