#include "analysis/frame/verdicts.h"

#include <cctype>

namespace plumbline::analysis {
namespace {

v1::Verdict Make(v1::Verdict::Kind kind, std::string reason, google::protobuf::Struct details) {
  v1::Verdict verdict;
  verdict.set_kind(kind);
  verdict.set_reason(std::move(reason));
  *verdict.mutable_details() = std::move(details);
  return verdict;
}

}  // namespace

v1::Verdict Inconclusive(std::string reason, google::protobuf::Struct details) {
  return Make(v1::Verdict::KIND_INCONCLUSIVE, std::move(reason), std::move(details));
}

v1::Verdict Pass(std::string reason, google::protobuf::Struct details) {
  return Make(v1::Verdict::KIND_PASS, std::move(reason), std::move(details));
}

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

void Put(google::protobuf::Struct& s, const std::string& key, double value) {
  (*s.mutable_fields())[key].set_number_value(value);
}

void Put(google::protobuf::Struct& s, const std::string& key, std::string_view value) {
  (*s.mutable_fields())[key].set_string_value(std::string(value));
}

void PutId(google::protobuf::Struct& s, const std::string& key, int64_t id) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (id >= -kExact && id <= kExact) return Put(s, key, static_cast<double>(id));
  Put(s, key, std::to_string(id));
}

void PutFlag(google::protobuf::Struct& s, const std::string& key, bool value) {
  (*s.mutable_fields())[key].set_bool_value(value);
}

google::protobuf::Struct& PutStruct(google::protobuf::Struct& s, const std::string& key) {
  return *(*s.mutable_fields())[key].mutable_struct_value();
}

}  // namespace plumbline::analysis
