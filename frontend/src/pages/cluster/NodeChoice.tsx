import type { ClusterNode } from "../../api/types";
import { typeName } from "../../lib/format";

interface Props {
  nodes: ClusterNode[];
  names: string;
  types: string[];
  onNames: (names: string) => void;
  onTypes: (types: string[]) => void;
}

export const listed = (text: string) => text.split(/[,\s]+/).filter(Boolean);

/** Nodes by name, as text so that many can be pasted, and by type. */
export function NodeChoice({ nodes, names, types, onNames, onTypes }: Props) {
  const known = [...new Set(nodes.map((node) => node.type))].sort();
  return (
    <>
      <div className="f grow" style={{ minWidth: 200 }}>
        <label htmlFor="set-nodes">Nodes by name</label>
        <input id="set-nodes" className="in" placeholder={nodes.slice(0, 2).map((node) => node.name).join(", ")} value={names} onChange={(event) => onNames(event.target.value)} />
      </div>
      <fieldset style={{ border: 0, padding: 0, display: "flex", gap: 12, flexBasis: "100%", flexWrap: "wrap" }}>
        <legend className="lab1" style={{ padding: 0 }}>All nodes of</legend>
        {known.map((type) => (
          <label key={type} style={{ display: "flex", gap: 6, alignItems: "center" }}>
            <input type="checkbox" checked={types.includes(type)} onChange={() => onTypes(types.includes(type) ? types.filter((one) => one !== type) : [...types, type])} />{typeName(type)}
          </label>
        ))}
      </fieldset>
    </>
  );
}
