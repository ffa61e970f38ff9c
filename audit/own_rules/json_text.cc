#include "audit/own_rules/json_text.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace plumbline::audit {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Appends one value of a field; `i` is its index if the field is repeated, else -1.
void AppendFieldValue(std::string* out, const Message& message, const FieldDescriptor* field,
                      int i) {
  const google::protobuf::Reflection& of = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      *out += (i < 0 ? of.GetBool(message, field) : of.GetRepeatedBool(message, field, i))
                  ? "true"
                  : "false";
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      absl::StrAppend(out,
                      i < 0 ? of.GetInt32(message, field) : of.GetRepeatedInt32(message, field, i));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      absl::StrAppend(out,
                      i < 0 ? of.GetInt64(message, field) : of.GetRepeatedInt64(message, field, i));
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      absl::StrAppend(
          out, i < 0 ? of.GetUInt32(message, field) : of.GetRepeatedUInt32(message, field, i));
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      absl::StrAppend(
          out, i < 0 ? of.GetUInt64(message, field) : of.GetRepeatedUInt64(message, field, i));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return AppendJsonNumber(
          out, i < 0 ? of.GetDouble(message, field) : of.GetRepeatedDouble(message, field, i));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return AppendJsonNumber(
          out, i < 0 ? of.GetFloat(message, field) : of.GetRepeatedFloat(message, field, i));
    case FieldDescriptor::CPPTYPE_ENUM:
      return AppendJsonString(
          out,
          (i < 0 ? of.GetEnum(message, field) : of.GetRepeatedEnum(message, field, i))->name());
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      const std::string& text = i < 0 ? of.GetStringReference(message, field, &scratch)
                                      : of.GetRepeatedStringReference(message, field, i, &scratch);
      if (field->type() != FieldDescriptor::TYPE_BYTES) return AppendJsonString(out, text);
      absl::StrAppend(out, "\"", absl::Base64Escape(text), "\"");
      return;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return AppendJsonMessage(
          out, i < 0 ? of.GetMessage(message, field) : of.GetRepeatedMessage(message, field, i));
  }
}

}  // namespace

void AppendJsonString(std::string* out, std::string_view text) {
  *out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void AppendJsonNumber(std::string* out, double value) {
  if (std::isnan(value)) {
    *out += "\"nan\"";
  } else if (std::isinf(value)) {
    *out += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value);
    out->append(buffer, end.ptr);
  }
}

void AppendJsonMessage(std::string* out, const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  const google::protobuf::Reflection& of = *message.GetReflection();
  of.ListFields(message, &fields);
  *out += '{';
  for (size_t f = 0; f < fields.size(); ++f) {
    if (f > 0) *out += ',';
    absl::StrAppend(out, "\"", fields[f]->name(), "\":");
    if (!fields[f]->is_repeated()) {
      AppendFieldValue(out, message, fields[f], -1);
      continue;
    }
    *out += '[';
    for (int i = 0; i < of.FieldSize(message, fields[f]); ++i) {
      if (i > 0) *out += ',';
      AppendFieldValue(out, message, fields[f], i);
    }
    *out += ']';
  }
  *out += '}';
}

}  // namespace plumbline::audit
