import type { ComponentType } from "react";
import type { Session } from "../../api/types";
import type { JobFile } from "../../lib/jobfile/jobFile";
import { TestPage, type Answers } from "../../testing/page";
import type { FieldError } from "./fields";
import { useDraft, type Draft } from "./useDraft";

type Fields = ComponentType<{ draft: Draft; errors: FieldError[] }>;

/** Fields of the Submit page over a job file; `draft` is what they make of it. */
export class DraftPage extends TestPage {
  draft!: Draft;

  constructor(private readonly fields: Fields, answers: Answers = () => undefined) {
    super(answers);
    sessionStorage.clear();
  }

  /** Shown again, it is the same form with another answer. */
  async showDraft(file: JobFile, errors: FieldError[] = []): Promise<void> {
    await this.show(<this.Shown file={file} errors={errors} />);
  }

  private readonly Shown = ({ file, errors }: { file: JobFile; errors: FieldError[] }) => {
    this.draft = useDraft({ projects: [] } as unknown as Session, file);
    return <this.fields draft={this.draft} errors={errors} />;
  };
}
