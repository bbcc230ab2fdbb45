// The C interface of what the library would like to say.
#include <perdure/messages.h>
#include <perdure/perdure.h>

#include <string>

#include "capi/failure.h"

static_assert(PERDURE_INFO == static_cast<int>(perdure::Severity::Info));
static_assert(PERDURE_ERROR == static_cast<int>(perdure::Severity::Error));

perdure_code perdure_set_message_callback(perdure_message_callback callback, void* context) {
  return perdure::capi::guarded([&] {
    if (callback == nullptr) {
      perdure::set_message_callback({});
      return PERDURE_OK;
    }
    perdure::set_message_callback(
        [callback, context](perdure::Severity severity, const std::string& message) {
          callback(static_cast<perdure_severity>(severity), message.c_str(), context);
        });
    return PERDURE_OK;
  });
}
