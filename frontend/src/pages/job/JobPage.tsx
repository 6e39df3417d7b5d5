export default function JobPage() { return null; }
