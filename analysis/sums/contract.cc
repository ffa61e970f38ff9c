#include "analysis/sums/contract.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "analysis/sums/model_text.h"

namespace plumbline::sums {
namespace {

// FNV-1a over the formats, in the order in which the tree's leaves reach them.
std::string FormatsHash(const SumModel& model) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto add = [&hash](uint64_t x) { hash = (hash ^ x) * 0x100000001b3ull; };
  // Node numbers depend on the seed, so nodes are identified by their first leaf and their size.
  std::map<std::pair<int, int>, int> precisions;
  for (int i = 0; i < model.tree.nodes(); ++i) {
    const auto& node = model.tree.node(model.tree.leaves() + i);
    precisions[{node.first, node.size}] = model.formats[static_cast<size_t>(i)].precision;
  }
  for (const auto& [node, precision] : precisions) add(static_cast<uint64_t>(precision));
  for (const uint8_t fused : model.fused) add(fused);
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string ProductsOf(const SumModel& model) {
  if (!HasProducts(model.kind)) return "";
  const auto fused = std::count(model.fused.begin(), model.fused.end(), 1);
  if (2 * SumFormatOf(model.input).precision <= model.accumulator().precision) return "exact";
  if (fused == 0) return "rounded";
  return fused == static_cast<int64_t>(model.fused.size()) ? "unrounded" : "mixed";
}

// ---- writing and reading by one list of fields --------------------------------------------------

struct Field {
  const char* section;
  const char* key;
  std::function<void(toml::table*)> write;
  std::function<std::string(const toml::node&)>
      read;  // returns what was expected; empty if it was read
};

Field Text(const char* section, const char* key, std::string* at) {
  return {section, key, [=](toml::table* t) { t->insert(key, *at); },
          [=](const toml::node& n) -> std::string {
            if (!n.is_string()) return "a string";
            *at = **n.as_string();
            return "";
          }};
}

Field Integer(const char* section, const char* key, int* at) {
  return {section, key, [=](toml::table* t) { t->insert(key, *at); },
          [=](const toml::node& n) -> std::string {
            if (!n.is_integer() || **n.as_integer() != static_cast<int>(**n.as_integer())) {
              return "an integer of 32 bits";
            }
            *at = static_cast<int>(**n.as_integer());
            return "";
          }};
}

Field Flag(const char* section, const char* key, bool* at) {
  return {section, key, [=](toml::table* t) { t->insert(key, *at); },
          [=](const toml::node& n) -> std::string {
            if (!n.is_boolean()) return "true or false";
            *at = **n.as_boolean();
            return "";
          }};
}

Field Named(const char* section, const char* key, const char* expected,
            const std::function<std::string()>& name,
            const std::function<bool(const std::string&)>& parse) {
  return {section, key, [=](toml::table* t) { t->insert(key, name()); },
          [=](const toml::node& n) -> std::string {
            return n.is_string() && parse(**n.as_string()) ? "" : expected;
          }};
}

bool ParseDType(const std::string& name, DType* t) {
  for (const DType d :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    if (name == DTypeName(d)) {
      *t = d;
      return true;
    }
  }
  return false;
}

Field Dtype(const char* section, const char* key, DType* at) {
  return Named(
      section, key, "one of f64, f32, f16, bf16, e4m3, e5m2",
      [=] { return std::string(DTypeName(*at)); },
      [=](const std::string& name) { return ParseDType(name, at); });
}

std::vector<Field> FieldsOf(Contract* c) {
  return {
      Text("function", "name", &c->name),
      Text("function", "library", &c->library),
      Named(
          "function", "kind", "one of sum, dot, gemm, all-reduce",
          [=] { return std::string(KindName(c->kind)); },
          [=](const std::string& name) { return ParseKind(name, &c->kind); }),
      Integer("function", "n", &c->n),
      Dtype("function", "input", &c->input),
      Dtype("function", "output", &c->output),
      Named(
          "verdict", "verdict", "one of verified, order-only, no-order, nondeterministic",
          [=] { return std::string(VerdictName(c->verdict)); },
          [=](const std::string& name) { return ParseVerdict(name, &c->verdict); }),
      Text("verdict", "evidence", &c->evidence),
      Integer("verdict", "matches", &c->matches),
      Integer("verdict", "samples", &c->samples),
      Text("order", "tree", &c->tree_hash),
      Text("order", "words", &c->order),
      Text("arithmetic", "words", &c->arithmetic),
      Text("arithmetic", "accumulator", &c->accumulator),
      Text("arithmetic", "formats", &c->formats_hash),
      Text("arithmetic", "rounding", &c->rounding),
      Text("arithmetic", "products", &c->products),
      Integer("arithmetic", "fraction_bits", &c->fraction_bits),
      Integer("arithmetic", "block", &c->block),
      Integer("arithmetic", "input_bits_a", &c->input_bits_a),
      Integer("arithmetic", "input_bits_b", &c->input_bits_b),
      Flag("arithmetic", "flush_inputs", &c->flush_inputs),
      Flag("arithmetic", "flush_results", &c->flush_results),
      Text("arithmetic", "store_rounding", &c->store_rounding),
      Text("replay", "model", &c->model),
  };
}

absl::Status Bad(const std::string& path, const toml::source_region& at, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", at.begin.line, ": ", what));
}

absl::Status ReadTests(const toml::node& node, const std::string& path, Contract* contract) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return Bad(path, node.source(), "tests: expected tables");
  for (const toml::node& element : *array) {
    const toml::table* table = element.as_table();
    TestResult test;
    for (const auto& [key, at] : {std::pair{"id", &test.id}, std::pair{"name", &test.name},
                                  std::pair{"result", &test.result}}) {
      const toml::node* value = table == nullptr ? nullptr : table->get(key);
      if (value == nullptr || !value->is_string()) {
        return Bad(path, element.source(), absl::StrCat("tests: expected a string ", key));
      }
      *at = **value->as_string();
    }
    contract->tests.push_back(std::move(test));
  }
  return absl::OkStatus();
}

absl::Status Read(const toml::table& root, const std::string& path, Contract* contract) {
  const std::vector<Field> fields = FieldsOf(contract);
  for (const Field& field : fields) {
    const toml::table* section = root[field.section].as_table();
    const toml::node* node = section == nullptr ? nullptr : section->get(field.key);
    if (node == nullptr) {
      return Bad(path, section == nullptr ? root.source() : section->source(),
                 absl::StrCat("expected ", field.section, ".", field.key));
    }
    const std::string expected = field.read(*node);
    if (!expected.empty()) {
      return Bad(path, node->source(),
                 absl::StrCat(field.section, ".", field.key, ": expected ", expected));
    }
  }
  for (const auto& [name, node] : root) {
    const std::string section(name.str());
    if (section == "schema") continue;
    if (section == "tests") {
      if (absl::Status s = ReadTests(node, path, contract); !s.ok()) return s;
      continue;
    }
    const toml::table* table = node.as_table();
    const auto known = [&](const std::string& key) {
      return std::any_of(fields.begin(), fields.end(), [&](const Field& f) {
        return section == f.section && (key.empty() || key == f.key);
      });
    };
    if (table == nullptr || !known("")) return Bad(path, node.source(), "unknown key " + section);
    for (const auto& [key, value] : *table) {
      if (!known(std::string(key.str()))) {
        return Bad(path, value.source(),
                   absl::StrCat("unknown key ", section, ".", std::string(key.str())));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

Contract ContractOf(const Fingerprint& f) {
  Contract c;
  c.name = f.name;
  c.library = f.library;
  c.kind = f.kind;
  c.n = f.n;
  c.input = f.input;
  c.output = f.output;
  c.verdict = f.verdict;
  c.evidence = f.evidence;
  c.matches = f.matches;
  c.samples = f.samples;
  c.tests = f.tests;
  c.order = f.order;
  c.tree_hash = f.tree_hash;
  if (f.verdict != Verdict::kVerified)
    return c;  // if the replay fails, the contract has no arithmetic
  const Arithmetic& a = f.model.arithmetic;
  c.arithmetic = f.arithmetic;
  c.accumulator = SumFormatName(f.model.accumulator());
  c.formats_hash = FormatsHash(f.model);
  c.rounding = RoundingName(a.rounding);
  c.products = ProductsOf(f.model);
  const std::optional<Alignment>& aligned = a.block ? a.block : a.aligned;
  c.fraction_bits = aligned ? aligned->fraction_bits : -1;
  c.block = f.model.tree.WidestNode() > 2 ? f.model.tree.WidestNode() : 0;
  if (c.block > 0) c.rounding = RoundingName(a.block_rounding);
  c.input_bits_a = a.cut_a.bits;
  c.input_bits_b = a.cut_b.bits;
  c.flush_inputs = a.flush_inputs;
  c.flush_results = a.flush_results;
  c.store_rounding = RoundingName(a.store);
  c.model = ModelText(f.model);
  return c;
}

std::string ContractToml(const Contract& contract) {
  Contract copy = contract;
  // Write one section after the other, in the order of the fields, because the library sorts its
  // tables.
  std::string text = absl::StrCat("schema = \"", kContractSchema, "\"\n");
  const char* open = "";
  for (const Field& field : FieldsOf(&copy)) {
    if (std::string(field.section) != open) absl::StrAppend(&text, "\n[", field.section, "]\n");
    open = field.section;
    toml::table one;
    field.write(&one);
    std::ostringstream line;
    line << one;
    absl::StrAppend(&text, line.str(), "\n");
  }
  for (const TestResult& test : contract.tests) {
    for (const auto& [key, value] : {std::pair{"id", &test.id}, std::pair{"name", &test.name},
                                     std::pair{"result", &test.result}}) {
      if (value == &test.id) text += "\n[[tests]]\n";
      std::ostringstream line;
      line << toml::table{{key, *value}};
      absl::StrAppend(&text, line.str(), "\n");
    }
  }
  return text;
}

absl::StatusOr<Contract> ParseContract(const std::string& text, const std::string& path) {
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return Bad(path, error.source(), std::string(error.description()));
  }
  const auto schema = root["schema"].value<std::string>();
  if (!schema || *schema != kContractSchema) {
    return Bad(path, root.source(),
               absl::StrCat("schema: expected \"", kContractSchema, "\", found ",
                            schema ? "\"" + *schema + "\"" : "none"));
  }
  Contract contract;
  if (absl::Status s = Read(root, path, &contract); !s.ok()) return s;
  return contract;
}

absl::StatusOr<std::vector<Contract>> ParseContracts(const std::string& text,
                                                     const std::string& path) {
  constexpr char kBegin[] = "\nschema";
  std::vector<Contract> contracts;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(kBegin, at), text.size() - 1) + 1;
    absl::StatusOr<Contract> one = ParseContract(text.substr(at, next - at), path);
    if (!one.ok()) return one.status();
    contracts.push_back(*std::move(one));
    at = next;
  }
  return contracts;
}

std::vector<std::string> ContractDifferences(const Contract& held, const Contract& found) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, const std::string& x, const std::string& y) {
    if (x != y) differences.push_back(absl::StrCat(what, ": held ", x, ", found ", y));
  };
  compare("verdict", VerdictName(held.verdict), VerdictName(found.verdict));
  if (held.tree_hash != found.tree_hash) {
    compare("order", absl::StrCat(held.order, " [", held.tree_hash, "]"),
            absl::StrCat(found.order, " [", found.tree_hash, "]"));
  }
  if (held.formats_hash != found.formats_hash || held.arithmetic != found.arithmetic) {
    compare("arithmetic", absl::StrCat(held.arithmetic, " [", held.formats_hash, "]"),
            absl::StrCat(found.arithmetic, " [", found.formats_hash, "]"));
  }
  return differences;
}

}  // namespace plumbline::sums
