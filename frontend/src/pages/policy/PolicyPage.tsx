export default function PolicyPage() { return null; }
