// Small makers that keep rules short: verdicts and google.protobuf.Struct values.
#pragma once

#include <string>
#include <string_view>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// `reason` reads "short-id: sentence"; equal ids are merged over steps.
v1::Verdict Inconclusive(std::string reason, google::protobuf::Struct details = {});
v1::Verdict Pass(std::string reason, google::protobuf::Struct details = {});

// The same sentence with a capital letter.
std::string Capitalised(std::string text);

void Put(google::protobuf::Struct& s, const std::string& key, double value);
void Put(google::protobuf::Struct& s, const std::string& key, std::string_view value);
inline void Put(google::protobuf::Struct& s, const std::string& key, const char* value) {
  Put(s, key, std::string_view(value));
}
void PutFlag(google::protobuf::Struct& s, const std::string& key, bool value);
google::protobuf::Struct& PutStruct(google::protobuf::Struct& s, const std::string& key);

}  // namespace plumbline::rules
