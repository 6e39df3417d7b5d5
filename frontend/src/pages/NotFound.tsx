import { Link } from "react-router";
import { TopBar } from "../shell/TopBar";

export default function NotFound() {
  return (
    <>
      <TopBar title="Not here" />
      <div className="page">
        <h1 className="say"><b>There is no such page.</b> It may have moved, or it needs rights that this account does not have.</h1>
        <p><Link className="link" to="/">Overview</Link></p>
      </div>
    </>
  );
}
