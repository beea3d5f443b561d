/** A media type in lower case without parameters; null when the field cannot be parsed. */
export function mediaType(field: string): string | null {
  const [type = '', ...parameters] = field.split(';').map((part) => part.trim());
  if (!/^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/.test(type)) return null;
  const valid = parameters.every((parameter) => /^[\w!#$&^.+-]+=(?:[^\s"]+|".*")$/.test(parameter));
  return valid || parameters.every((parameter) => parameter === '') ? type.toLowerCase() : null;
}

export const FORM = 'application/x-www-form-urlencoded';
