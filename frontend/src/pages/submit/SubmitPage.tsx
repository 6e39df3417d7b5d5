import type { Session } from "../../api/types";
export default function SubmitPage(_: { session: Session }) { return null; }
