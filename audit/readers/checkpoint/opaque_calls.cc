// Calls of a pickle that were left closed, and which of them are data.
#include <map>
#include <string_view>
#include <utility>

#include "audit/readers/checkpoint/torch_walk.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

// A bound method of an object that is data itself, as OneCycleLR keeps one.
bool IsMethodOfData(const PickleTree& tree, PickleId id) {
  const PickleId arguments = tree.call(id).arguments;
  if (tree.callee(id) != "builtins.getattr" || tree.items(arguments).size() != 2) return false;
  PickleId of = tree.items(arguments)[0];
  if (tree.Is(of, PickleKind::kCircle)) of = tree.circle(of).call;
  return tree.Is(tree.items(arguments)[1], PickleKind::kText) && IsDataClass(tree.callee(of));
}

std::string NameOfCall(const PickleTree& tree, PickleId id) {
  const std::string_view callee = tree.callee(id);
  return callee.empty() ? "a value that is no name" : ValidUtf8(callee);
}

}  // namespace

// Of all that the pickle made, reached from its root or not: what is there was written.
std::vector<OpaqueCall> OpaqueCalls(const TorchFile& file) {
  const PickleTree& tree = file.tree();
  std::map<std::string, OpaqueCall> calls;
  for (PickleId id = 0; id < tree.size(); ++id) {
    if (tree.Is(id, PickleKind::kCircle)) {
      const PickleCircle& circle = tree.circle(id);
      calls[NameOfCall(tree, circle.call)].circles += circle.count;
    }
    if (!tree.Is(id, PickleKind::kCall)) continue;
    const std::string_view callee = tree.callee(id);
    if (IsKnownRecord(callee)) continue;
    const std::string name = NameOfCall(tree, id);
    OpaqueCall& call = calls[name];
    if (call.count++ == 0) call.byte = file.byte(id);
    call.name = name;
    call.data &= IsDataClass(callee) || IsMethodOfData(tree, id);
  }
  std::vector<OpaqueCall> list;
  for (auto& [name, call] : calls) {
    if (call.count > 0) list.push_back(std::move(call));
  }
  return list;
}

}  // namespace plumbline::audit
