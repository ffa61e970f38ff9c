// Appends evidence to lines of JSON, in time linear in its size. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "google/protobuf/message.h"

namespace plumbline::audit {

// Appends a string in quotes. Bytes that are no UTF-8 are replaced.
void AppendJsonString(std::string* out, std::string_view text);
// Appends the shortest decimal that reads back as `value`, or "nan", "inf", "-inf" in quotes.
void AppendJsonNumber(std::string* out, double value);
// Appends the set fields by the names of the .proto file. Bytes are base64, enumerators are names.
void AppendJsonMessage(std::string* out, const google::protobuf::Message& message);

}  // namespace plumbline::audit
