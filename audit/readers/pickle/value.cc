#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

std::string_view PickleTree::text(PickleId id) const {
  const Node& node = nodes_[id];
  const std::string_view all = node.owned ? std::string_view(owned_) : data_;
  return all.substr(node.span.at, node.span.size);
}

std::string PickleTree::bytes(PickleId id) const {
  const std::string_view written = text(id);
  if (!nodes_[id].latin) return std::string(written);
  std::string out;
  out.reserve(written.size());
  // U+0080 to U+00FF are two bytes of UTF-8; the machine has checked that there are no others.
  for (size_t i = 0; i < written.size(); ++i) {
    const auto c = static_cast<unsigned char>(written[i]);
    if (c < 0x80 || i + 1 == written.size()) {
      out.push_back(static_cast<char>(c));
    } else {
      const auto low = static_cast<unsigned char>(written[++i]);
      out.push_back(static_cast<char>((c & 3u) << 6 | (low & 0x3fu)));
    }
  }
  return out;
}

std::string_view PickleTree::run_bytes(PickleId id) const {
  const PickleRun& of = run(id);
  return data_.substr(of.begin, of.end - of.begin);
}

uint64_t PickleTree::length(PickleId id) const {
  const std::vector<PickleId>& all = items(id);
  if (runs_.empty()) return all.size();
  const uint64_t each = Is(id, PickleKind::kDict) ? 2 : 1;  // in a dict, a run is both key and
                                                            // value
  uint64_t length = 0;
  for (size_t i = 0; i < all.size(); i += Is(all[i], PickleKind::kRun) ? each : 1)
    length += Is(all[i], PickleKind::kRun) ? run(all[i]).items : 1;
  return length;
}

std::string_view PickleTree::callee(PickleId id) const {
  if (!Is(id, PickleKind::kCall)) return {};
  const PickleId callee = call(id).callee;
  return Is(callee, PickleKind::kGlobal) ? text(callee) : std::string_view();
}

PickleId PickleTree::Find(PickleId dict, std::string_view key) const {
  if (!Is(dict, PickleKind::kDict)) return kNoPickle;
  const std::vector<PickleId>& pairs = items(dict);
  for (size_t i = pairs.size(); i >= 2; i -= 2) {
    if (Is(pairs[i - 2], PickleKind::kText) && text(pairs[i - 2]) == key) return pairs[i - 1];
  }
  return kNoPickle;
}

}  // namespace plumbline::audit
