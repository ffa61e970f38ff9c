// Small helpers for verdicts and google.protobuf.Struct values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// `reason` has the form "short-id: sentence". Equal ids are merged over steps.
v1::Verdict Inconclusive(std::string reason, google::protobuf::Struct details = {});
v1::Verdict Pass(std::string reason, google::protobuf::Struct details = {});

// Sets the place of a verdict; ranks are numbers in ascending order. The engine fills what is
// missing from the step that it judged.
template <typename Ranks>
void SetPlace(v1::Verdict& verdict, const std::string& layer, const std::string& op,
              int64_t step_first, int64_t step_last, const Ranks& ranks) {
  v1::FindingSite& site = *verdict.mutable_site();
  site.set_layer(layer);
  site.set_op(op);
  site.set_step_first(step_first);
  site.set_step_last(step_last);
  for (const uint32_t rank : ranks) site.add_ranks(rank);
}

// Returns the same sentence with a capital letter.
std::string Capitalised(std::string text);

void Put(google::protobuf::Struct& s, const std::string& key, double value);
void Put(google::protobuf::Struct& s, const std::string& key, std::string_view value);
// Adds an id as a number. If a double would round it, adds decimal text.
void PutId(google::protobuf::Struct& s, const std::string& key, int64_t id);
inline void Put(google::protobuf::Struct& s, const std::string& key, const char* value) {
  Put(s, key, std::string_view(value));
}
void PutFlag(google::protobuf::Struct& s, const std::string& key, bool value);
google::protobuf::Struct& PutStruct(google::protobuf::Struct& s, const std::string& key);

}  // namespace plumbline::analysis
