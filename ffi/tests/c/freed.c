/* Frees a loader or a batch twice, or uses it after it was freed, which must be reported. The
 * program's argument selects the mistake. */

#include "proof.h"

int main(int count, char **words) {
  CHECK(count == 2);
  slotline_dataset *digits = NULL;
  slotline_loader *loader = NULL, *others[8] = {NULL};
  slotline_batch *batch = NULL;
  slotline_error *error = NULL;
  CHECK(slotline_dataset_open("digits", &digits, NULL) == SLOTLINE_OK);
  CHECK(slotline_loader_new(digits, NULL, &loader, NULL) == SLOTLINE_OK);
  CHECK(slotline_loader_epoch(loader, NULL) == SLOTLINE_OK);
  CHECK(slotline_loader_next(loader, &batch, NULL) == SLOTLINE_OK);
  slotline_batch_free(batch);
  if (strcmp(words[1], "batch") == 0) slotline_batch_free(batch);
  slotline_loader_free(loader);
  /* Later loaders must not reuse the address of the freed one. */
  for (int i = 0; i < 8; ++i) CHECK(slotline_loader_new(digits, NULL, &others[i], NULL) == SLOTLINE_OK);
  if (strcmp(words[1], "next") == 0) {
    CHECK(slotline_loader_next(loader, &batch, &error) == SLOTLINE_ERROR_INVALID);
    puts(slotline_error_message(error));
    slotline_error_free(error);
  }
  if (strcmp(words[1], "loader") == 0) slotline_loader_free(loader);
  for (int i = 0; i < 8; ++i) slotline_loader_free(others[i]);
  slotline_dataset_free(digits);
  puts("ok");
  return 0;
}
