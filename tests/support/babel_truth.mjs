// Babel as the judge of semantic-v2: files as JSON on stdin, definitions as JSON on stdout.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const { parse } = createRequire(process.cwd() + "/")("@babel/parser");

const dropped = new Set(["start", "end", "loc", "extra", "leadingComments", "trailingComments", "innerComments"]);
const dump = (node) => JSON.stringify(node, (key, value) => (dropped.has(key) ? undefined : value));
const outer = (node) => (node.type.startsWith("Export") && node.declaration ? node.declaration : node);

function* definitions(program) {
  for (const statement of program.body) {
    const node = outer(statement);
    const exported = statement.type;
    if (node.type === "FunctionDeclaration") {
      yield [node.id.name, "function", [exported, node.params, node.async, node.generator], node.body];
    } else if (node.type === "ClassDeclaration") {
      yield [node.id.name, "class", [exported, node.superClass], null];
      for (const member of node.body.body.filter((item) => item.type === "ClassMethod")) {
        const head = [member.kind, member.static, member.async, member.params];
        yield [`${node.id.name}.${member.key.name}`, "function", head, member.body];
      }
    }
  }
}

const files = JSON.parse(readFileSync(0, "utf8"));
const found = {};
for (const [path, text] of Object.entries(files)) {
  const program = parse(text, { sourceType: "module" }).program;
  found[path] = [...definitions(program)].map(([name, kind, head, body]) => [name, kind, dump(head), dump(body)]);
}
process.stdout.write(JSON.stringify(found));
