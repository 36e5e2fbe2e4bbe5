// node typescript_judge.js TYPESCRIPT BEFORE AFTER: what the compiler refuses of AFTER to callers of BEFORE, as JSON.
//
// Both modules are in one program, and the compiler says whether types can stand for each other. Private members are
// blanked first, because they make classes of two files differ that callers cannot tell apart. A difference that lies
// in a type whose text is the same on both sides is told at that type, and only counted here.
const ts = require(process.argv[2]);
const [before, after] = process.argv.slice(3, 5);
const options = {
  strict: true, skipLibCheck: true, noEmit: true, types: [], allowJs: false,
  module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, target: ts.ScriptTarget.ES2022,
};
const WRITTEN = `${before}.judge.ts`;

function withoutPrivate(text, file) {
  let found = text;
  const blank = (from, to) => { found = found.slice(0, from) + found.slice(from, to).replace(/[^\n]/g, " ") + found.slice(to); };
  const visit = (node) => {
    if (ts.isClassElement(node)) {
      const words = ts.canHaveModifiers(node) ? ts.getModifiers(node) || [] : [];
      const hidden = words.some((word) => word.kind === ts.SyntaxKind.PrivateKeyword);
      if (hidden || (node.name && ts.isPrivateIdentifier(node.name))) {
        if (!ts.isConstructorDeclaration(node)) blank(node.getStart(), node.end);
        return;
      }
      for (const word of words) if (word.kind === ts.SyntaxKind.ProtectedKeyword) blank(word.getStart(), word.end);
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, text, options.target, true));
  return found;
}

function makeProgram(written) {
  const host = ts.createCompilerHost(options);
  const plain = host.getSourceFile.bind(host);
  host.getSourceFile = (name, target, ...rest) => {
    if (name === WRITTEN) return ts.createSourceFile(name, written, target, true);
    if (/node_modules|[\\/]lib\.[\w.]+\.d\.ts$/.test(name) || !/\.[cm]?tsx?$/.test(name)) return plain(name, target, ...rest);
    const text = host.readFile(name);
    return text === undefined ? undefined : ts.createSourceFile(name, withoutPrivate(text, name), target, true);
  };
  const exists = host.fileExists.bind(host);
  host.fileExists = (name) => name === WRITTEN || exists(name);
  return ts.createProgram([before, after, WRITTEN], options, host);
}

const F = ts.SymbolFlags;
const isHidden = (name) => name.startsWith("_") || name.startsWith("#");
const parametersOf = (symbol) => {
  const listed = (symbol.declarations || []).map((node) => node.typeParameters || []);
  return listed.reduce((one, other) => (other.length > one.length ? other : one), []);
};

class Judge {
  constructor(program, checker, uses) {
    Object.assign(this, { program, checker, uses, breaks: {}, through: 0, compared: 0, homes: new Map() });
  }
  exports(file) {
    const module = this.checker.getSymbolAtLocation(this.program.getSourceFile(file));
    return module ? this.members(module) : new Map();
  }
  members(module) {
    const found = new Map();
    for (const symbol of this.checker.getExportsOfModule(module)) {
      const name = symbol.name === "export=" ? "default" : symbol.name;
      if (!isHidden(name) && !this.isInternal(symbol)) found.set(name, symbol.flags & F.Alias ? this.checker.getAliasedSymbol(symbol) : symbol);
    }
    return found;
  }
  isInternal(symbol) { return symbol.getJsDocTags(this.checker).some((tag) => tag.name === "internal"); }
  tell(name, why) { (this.breaks[name] ||= []).push(why); }
  text(type, flags) { return this.checker.typeToString(type, undefined, ts.TypeFormatFlags.NoTruncation | flags); }
  // Arguments of types are left out: one that came with a default is printed too.
  written(type, flags) {
    let text = this.text(type, flags), before;
    do { before = text; text = text.replace(/<[^<>]*>/g, ""); } while (text !== before);
    return text.split(" | ").sort().join(" | ");
  }
  fits(source, target) { return this.checker.isTypeAssignableTo(source, target); }
  // Whether one type can stand for the other; a difference inside of what both call the same is told there.
  replaces(source, target, flags = 0) {
    if (this.fits(source, target)) return true;
    if (this.written(source, flags) !== this.written(target, flags)) return false;
    this.through += 1;
    return true;
  }
  surface(old, fresh, prefix) {
    for (const [name, symbol] of [...old, ...fresh]) this.homes.set(symbol, this.homes.get(symbol) || `${prefix}${name}`);
    for (const [name, symbol] of old) {
      const full = `${prefix}${name}`, other = fresh.get(name);
      this.compared += 1;
      if (!other) this.tell(full, "removed");
      else if (this.homes.get(symbol) === full) this.symbol(full, symbol, other);
    }
  }
  symbol(name, one, other) {
    for (const [flags, word] of [[F.Value, "value"], [F.Type, "type"]]) {
      if (one.flags & flags && !(other.flags & flags)) return this.tell(name, `no ${word}`);
    }
    if (one.flags & F.Enum) return this.surface(this.members(one), this.members(other), `${name}.`);
    if (one.flags & (F.Class | F.Interface | F.TypeAlias) && this.number(one) !== this.number(other)) return this.tell(name, "type parameters");
    const kinds = [one, other].map((symbol) => this.uses.get(symbol) || this.checker.getDeclaredTypeOfSymbol(symbol));
    if (one.flags & F.TypeAlias) {
      if (!this.isObject(one)) {
        const written = ts.TypeFormatFlags.InTypeAlias;
        if (!this.replaces(kinds[0], kinds[1], written) || !this.replaces(kinds[1], kinds[0], written)) this.tell(name, "type");
      } else this.properties(name, one, ...kinds, true);
    } else if (one.flags & (F.Class | F.Interface)) this.properties(name, one, ...kinds, !(one.flags & F.Class));
    if (one.flags & F.Value && one.flags & (F.Class | F.Function | F.Variable)) {
      const values = [one, other].map((symbol) => this.checker.getTypeOfSymbol(symbol));
      if (one.flags & F.Class) {
        this.called(`${name}.constructor`, ...values, ts.SignatureKind.Construct);
        this.properties(name, one, ...values, false);
      } else this.value(name, ...values);
    }
    if (one.flags & F.Namespace) this.surface(this.members(one), this.members(other), `${name}.`);
  }
  number(symbol) { return parametersOf(symbol).filter((node) => !node.default).length; }
  isObject(symbol) { return (symbol.declarations || []).some((node) => ts.isTypeAliasDeclaration(node) && ts.isTypeLiteralNode(node.type)); }
  value(name, one, other) {
    if (one.getCallSignatures().length) this.called(name, one, other, ts.SignatureKind.Call);
    else if (!this.replaces(other, one)) this.tell(name, "value");
  }
  // Each call that was good must be good: no fewer places, none more required, wider parameters, a narrower result.
  called(name, one, other, kind) {
    const [old, fresh] = [one, other].map((type) => this.checker.getSignaturesOfType(type, kind));
    if (!old.length) return;
    if (!fresh.length) return this.tell(name, "no longer called");
    const most = (signatures) => Math.max(...signatures.map((item) => (item.declaration && item.declaration.parameters.some((p) => p.dotDotDotToken) ? Infinity : item.parameters.length)));
    if (most(fresh) < most(old)) return this.tell(name, "fewer parameters");
    if (old.length > 1 || fresh.length > 1) {
      if (kind === ts.SignatureKind.Call && !this.replaces(other, one)) this.tell(name, "overloads");
      return;
    }
    const least = (item) => (item.declaration ? item.declaration.parameters.filter((p) => !p.questionToken && !p.initializer && !p.dotDotDotToken && p.name.getText() !== "this").length : 0);
    if (least(fresh[0]) > least(old[0])) return this.tell(name, "a parameter is required");
    const generic = old[0].typeParameters || fresh[0].typeParameters;
    if (generic) {
      if (!this.replaces(other, one)) this.tell(name, "call");
      return;
    }
    for (const [place, param] of old[0].parameters.entries()) {
      const there = fresh[0].parameters[place];
      if (there && !this.replaces(...[param, there].map((item) => this.checker.getTypeOfSymbol(item)))) return this.tell(name, `parameter ${param.name}`);
    }
    const results = [fresh[0], old[0]].map((item) => item.getReturnType());
    if (kind === ts.SignatureKind.Call && !(results[1].flags & ts.TypeFlags.Void) && !this.replaces(...results)) this.tell(name, "result");
  }
  properties(name, owner, one, other, open) {
    const there = new Map(this.checker.getPropertiesOfType(other).map((item) => [item.name, item]));
    const isOwn = (item) => (item.declarations || []).some((node) => !this.program.isSourceFileDefaultLibrary(node.getSourceFile()));
    const leaf = (item) => item.name.replace(/^__(@\w+)@\d+$/, "@$1");
    const listed = this.checker.getPropertiesOfType(one).filter((item) => !isHidden(leaf(item)) && item.name !== "prototype" && isOwn(item) && !this.isInternal(item));
    const freshBy = new Map([...there.values()].map((item) => [leaf(item), item]));
    for (const item of listed) {
      const fresh = freshBy.get(leaf(item)), at = this.home(item, owner, name);
      const full = `${fresh && this.home(fresh, undefined, name) !== at ? name : at}.${leaf(item)}`;
      this.compared += 1;
      if (!fresh) {
        if (!full.startsWith(`${name}.`) && full in this.breaks) continue;
        this.tell(full, "removed");
        continue;
      }
      const [old, now] = [item, fresh].map((symbol) => this.checker.getTypeOfSymbol(symbol));
      const [fixed, fixedNow] = [item, fresh].map((symbol) => this.isReadonly(symbol));
      if (open && item.flags & F.Optional && !(fresh.flags & F.Optional)) this.tell(full, "required");
      else if (item.flags & F.Property && !fixed && fixedNow) this.tell(full, "writing");
      else if (old.getCallSignatures().length) this.value(full, old, now);
      else if (!this.replaces(now, old)) this.tell(full, "reading");
      else if (!fixed && (fixedNow || !this.replaces(old, now))) this.tell(full, "writing");
    }
    const known = new Set(this.checker.getPropertiesOfType(one).map((item) => item.name));
    for (const item of there.values()) {
      const abstract = (item.declarations || []).some((node) => ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Abstract);
      if (!known.has(item.name) && !isHidden(item.name) && (open ? !(item.flags & F.Optional) : abstract)) this.tell(`${name}.${item.name}`, "required");
    }
  }
  // The exported type that declares a member, else the one at hand.
  home(item, owner, name) {
    const holder = item.declarations && item.declarations[0] && item.declarations[0].parent;
    const symbol = holder && holder.name ? this.checker.getSymbolAtLocation(holder.name) : undefined;
    return symbol && symbol !== owner && this.homes.get(symbol) ? this.homes.get(symbol) : name;
  }
  isReadonly(symbol) {
    const flags = (symbol.declarations || []).map((node) => ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Readonly);
    return flags.some(Boolean) || (!!(symbol.flags & F.GetAccessor) && !(symbol.flags & F.SetAccessor));
  }
}

// Types with parameters are compared with `any` for each of them, in a file of their own.
let program = makeProgram("export {}");
let judge = new Judge(program, program.getTypeChecker(), new Map());
const lines = [], places = [];
for (const file of [before, after]) {
  for (const [name, symbol] of judge.exports(file)) {
    const count = parametersOf(symbol).length;
    if (count && symbol.flags & (F.Class | F.Interface | F.TypeAlias) && /^[\w$]+$/.test(name)) {
      const specifier = JSON.stringify(file.replace(/\.[cm]?tsx?$/, ".js").replace(/\.d\.js$/, ".js"));
      lines.push(`export type T${places.length} = import(${specifier}).${name}<${Array(count).fill("any").join(", ")}>;`);
      places.push([file, name]);
    }
  }
}
program = makeProgram(lines.join("\n") || "export {}");
judge = new Judge(program, program.getTypeChecker(), new Map());
const sides = [before, after].map((file) => judge.exports(file));
const written = judge.exports(WRITTEN);
places.forEach(([file, name], place) => {
  const alias = written.get(`T${place}`), symbol = sides[file === before ? 0 : 1].get(name);
  if (alias && symbol) judge.uses.set(symbol, judge.checker.getDeclaredTypeOfSymbol(alias));
});
judge.surface(sides[0], sides[1], "");
console.log(JSON.stringify({ breaks: judge.breaks, through: judge.through, compared: judge.compared, hasDefault: sides[0].has("default") }));
